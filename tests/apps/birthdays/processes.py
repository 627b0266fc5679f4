"""The application's real processes: workers, the API and a receiver, each started as a person would."""

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

from tests.support import ports
from tests.support.processes import ROOT
from tests.support.waiting import wait_until

START_WITHIN = 30  # seconds; a second or two, but the machine may be busy
QUICK = {
    "BIRTHDAYS_EVERY": "200ms",
    "BIRTHDAYS_LEASE_FOR": "2s",
    "TRUEUP_LEASE_FOR": "2s",
    "TRUEUP_DRAIN_FOR": "5s",
    "TRUEUP_LOG_FORMAT": "json",
}


class Process:
    """`python -m apps.birthdays …`; what it says goes to a file."""

    def __init__(self, log: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "apps.birthdays", *arguments],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

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

    def ask_to_stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Ask it to stop; its exit status."""
        self.ask_to_stop()
        return self.ended()

    def ended(self) -> int:
        """Its exit status, once it has ended."""
        return self._process.wait(START_WITHIN)


class Town:
    """Processes on one database, ended with the test."""

    def __init__(self, url: str, hook: str, directory: Path, stack: ExitStack) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            **{name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ},
            **QUICK,
            "TRUEUP_DATABASE_URL": url,
            "BIRTHDAYS_WEBHOOK_URL": hook,
            "BIRTHDAYS_WEBHOOK_ALLOW": "127.0.0.1",
        }
        self._directory = directory
        self._stack = stack
        self._started: list[Process] = []

    def start(self, *arguments: str, **variables: str) -> Process:
        log = self._directory / f"{len(self._started)}-{arguments[0]}.log"
        process = Process(log, {**self.environment, **variables}, *arguments)
        self._started.append(process)
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
def town(url: str, hook: str, directory: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        made = Town(url, hook, directory, stack)
        try:
            yield made
        except BaseException as error:
            error.add_note("\n".join(process.said for process in made._started))
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
