"""A contestant's process, from outside: started for one piece of work, it answers in lines of JSON (see stage.py)."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
ANSWER_WITHIN = 600  # seconds; the slowest drain takes a minute or two
END_WITHIN = 60


class WentWrong(Exception):
    """A contestant did not do what was asked of it."""


class Process:
    """One process, gone when the block is left. `answer` gives its next line."""

    def __init__(self, name: str, command: Sequence[str | Path]) -> None:
        self._name = name
        self._command = command
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._said = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.wait(END_WITHIN)
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self) -> dict[str, Any]:
        """The next line it says. Raises WentWrong with what it complained about when there is none."""
        try:
            line = self._lines.get(timeout=ANSWER_WITHIN)
        except queue.Empty:
            raise WentWrong(f"{self._name} says nothing: {self._complaint()}") from None
        if not line:
            raise WentWrong(f"{self._name} ended with status {self._process.wait(END_WITHIN)}: {self._complaint()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def end(self) -> None:
        """Ask a worker to stop. Harmless when the process is over."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finished(self) -> None:
        """Return when it has ended well. Raises WentWrong."""
        self.end()
        try:
            status = self._process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            raise WentWrong(f"{self._name} does not end: {self._complaint()}") from None
        if status != 0:
            raise WentWrong(f"{self._name} ended with status {status}: {self._complaint()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")  # it has said everything

    def _complaint(self) -> str:
        self._said.seek(0)
        return self._said.read()[-2000:].strip() or "without a word"
