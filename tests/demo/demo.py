"""The demo as a process of its own, for tests that watch it, interrupt it and kill it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

WITHIN = 180.0  # seconds; about forty on a machine that has nothing else to do
FEW = ("--users", "750", "--rate", "30")


class Demo:
    """`trueup demo --plain` with few users; all its files are below `place`, and all its processes can be found."""

    def __init__(self, place: Path, arguments: Sequence[str] = (), program: str | None = None) -> None:
        self._place = place
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [
                sys.executable,
                *(["-c", program] if program else ["-m", "trueup.cli", "demo", "--plain", *FEW, *arguments]),
            ],
            env={**os.environ, "TMPDIR": str(place)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def read_until(self, words: str) -> None:
        """Read on until a line has these words."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if words in line:
                return
        raise AssertionError(f"the demo ended without saying {words!r}:\n{self.output}")

    def wait(self) -> int:
        """The exit status; all of the output is there afterwards."""
        output, _ = self._process.communicate(timeout=WITHIN)
        self._lines.append(output)
        return self._process.returncode

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def left(self) -> list[str]:
        """The command lines of its processes that are still there, itself not counted."""
        listing = subprocess.run(["ps", "-eo", "pid=,command="], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"^\s*(\d+) (.+)$", listing, re.MULTILINE)
        return [command for pid, command in found if str(self._place) in command or self._is_child(int(pid))]

    def end(self) -> None:
        """Leave nothing behind, however the test went."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        self._process.communicate(timeout=WITHIN)

    def _is_child(self, pid: int) -> bool:
        with suppress(ProcessLookupError):
            return pid != self._process.pid and os.getsid(pid) == self._process.pid
        return False
