"""The demo's own processes: workers and an API, each with a log."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

START_WITHIN = 90.0  # seconds; a few, but the machine may be busy
STOP_WITHIN = 20.0
TAIL = 15  # lines of a log
ROOT = Path(__file__).parents[3]


class Part:
    def __init__(self, name: str, log: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self.name = name
        self._log, self._environment, self._arguments = log, dict(environment), arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "apps.wallpapers", *self._arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for us; we tell them
            )

    def kill(self) -> int:
        """As a crash would; the pid it had."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return self._process.pid

    def stop(self) -> None:
        """In order, if it can. Harmless when it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()

    def said(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-TAIL:])


def wait_for(part: Part, url: str) -> None:
    """Until it answers. Raises RuntimeError with what it said when it does not."""
    deadline = time.monotonic() + START_WITHIN
    while part.alive and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310 - loopback
            return
        time.sleep(0.05)
    raise RuntimeError(f"{part.name} does not answer:\n{part.said()}")
