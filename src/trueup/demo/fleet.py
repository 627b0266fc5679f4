"""The demo's processes: started, killed, frozen, thawed, stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

STOP_WITHIN = 15.0  # seconds
TAIL = 12  # lines


class Condition(StrEnum):
    WORKING = "working"
    KILLED = "killed"
    FROZEN = "frozen"
    STOPPED = "stopped"


class DemoProcess:
    """One of the demo's processes. When it is restarted, the new process writes to the same log."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self.condition = Condition.STOPPED
        self.pids: set[int] = set()
        self._command = command
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def title(self) -> str:
        return self.name

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trueup.demo.processes", *self._command],
                cwd=self.log.parent,
                env=self._environment,
                stdin=subprocess.PIPE,  # when it closes, the process knows that we are gone
                stdout=log,
                stderr=log,
                # A group of its own within our session: Ctrl-C does not reach it, and when we die while it is frozen
                # the kernel hangs up on it.
                process_group=0,
            )
        self.pids.add(self.pid)
        self.condition = Condition.WORKING

    def kill(self) -> None:
        """Kill the process with SIGKILL. Does nothing when it has ended."""
        if self._process is not None:
            self._process.kill()
            self._end(Condition.KILLED)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        self.condition = Condition.FROZEN

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.condition = Condition.WORKING

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def await_stop(self) -> int:
        """Wait for its end and return its exit status. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        self._process.wait(STOP_WITHIN)
        return self._end(Condition.STOPPED)

    def died(self) -> int | None:
        """Its exit status if it has ended by itself."""
        return self._process.poll() if self._process is not None else None

    def log_tail(self) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-TAIL:])

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, condition: Condition) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        status = self._process.wait()
        self._process.stdin.close()
        self._process = None
        self.condition = condition
        return status


class DemoWorker(DemoProcess):
    def __init__(self, name: str, log: Path, environment: Mapping[str, str]) -> None:
        super().__init__(name, ["worker"], log, environment)
        self.holders: set[UUID] = set()  # every holder id that it was seen with

    @property
    def title(self) -> str:
        return f"worker {self.name}"

    def written(self, event: str) -> Iterator[Mapping[str, Any]]:
        """The lines of its log with this event."""
        mark = f'"event_name":"{event}"'.encode()
        for line in self.log.read_bytes().splitlines() if self.log.exists() else ():
            if mark in line:
                yield orjson.loads(line)
