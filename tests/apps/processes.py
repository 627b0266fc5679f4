"""The applications' real processes: workers, APIs and what they talk to, each started as a person would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support import ports, warm
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

START_WITHIN = 30  # seconds; a second or two, but the machine may be busy
QUICK = {
    "TRUEUP_LEASE_FOR": "2s",
    "TRUEUP_DRAIN_FOR": "5s",
    "TRUEUP_LOG_FORMAT": "json",
    # Databases of tests have trueup's tables already; test_together.py is about schemas of their own.
    "TRUEUP_SCHEMA": "trueup",
    "TRUEUP_SEARCH_PATH": "public",
}


class Process:
    """`python -m apps.… …`; what it says goes to a file."""

    def __init__(self, module: str, log: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = warm.Popen(
                [sys.executable, "-W", "error", "-m", module, *arguments],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self, message: str) -> list[dict[str, Any]]:
        """What it has logged under this text."""
        lines = [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]
        return [line for line in lines if line["message"] == message]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ask_to_stop(self) -> None:
        self.send(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to stop; its exit status."""
        self.ask_to_stop()
        return self.ended()

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait(START_WITHIN)


class Town:
    """Processes of one application (`module`) with one environment, ended with the test."""

    def __init__(self, module: str, environment: Mapping[str, str], directory: Path, stack: ExitStack) -> None:
        passed_on = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        self.environment = {**passed_on, **QUICK, **environment}
        self._module = module
        self._directory = directory
        self._stack = stack
        self.started: list[Process] = []

    def start(self, *arguments: str, module: str | None = None, **variables: str) -> Process:
        name = arguments[0] if arguments else "process"
        log = self._directory / f"{len(self.started)}-{name}.log"
        process = Process(module or self._module, log, {**self.environment, **variables}, *arguments)
        self.started.append(process)
        self._stack.callback(process.kill)
        return process

    def serve(self, *arguments: str, **variables: str) -> tuple[Process, str]:
        """A process that answers HTTP (`serve`, `sink`), and where."""
        reserved = self._stack.enter_context(ports.reserve())
        port = ports.number(reserved)
        process = self.start(*arguments, "--port", str(port), **variables)
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(process, f"{base}/openapi.json"), f"{arguments[0]} answers", timeout=START_WITHIN)
        return process, base


@contextmanager
def town(module: str, environment: Mapping[str, str], directory: Path) -> Iterator[Town]:
    """A failure inside the block quotes what every process has said."""
    with ExitStack() as stack:
        made = Town(module, environment, directory, stack)
        try:
            yield made
        except BaseException as error:
            error.add_note("\n".join(f"-- {process.pid}:\n{process.said}" for process in made.started))
            raise


def _answers(process: Process, url: str) -> bool:
    assert process.alive, process.said
    try:
        ask(url)
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def ask(url: str, method: str = "GET", body: Any = None) -> Any:
    """The JSON it answers, or its text."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read().decode()
    return json.loads(text) if text[:1] in ("{", "[") else text
