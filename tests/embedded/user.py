"""A process that uses a shared server: `python -m tests.embedded.user DIRECTORY`, and its handle for tests.

It prints the URL once it has the server, and leaves in order when its input ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from trueup.embedded import processes
from trueup.embedded.embedded import EmbeddedPostgres

FAST = {"fsync": "off"}


class User:
    """A user process; leaves by itself when the test that started it dies."""

    def __init__(self, directory: Path, *, inside: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*inside, sys.executable, "-m", "tests.embedded.user", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a process group of its own, to send it Ctrl-C
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    @cached_property
    def url(self) -> str:
        """What `acquire` returned; waits for it."""
        url = self._output.readline().strip()
        assert url, "the user process failed; its error is in the captured output"
        return url

    @property
    def inner_pid(self) -> int:
        """Of the user itself, as we see it, when it runs inside something that waits for it."""
        (pid,) = processes.children(self.pid)
        return pid

    def leave(self) -> None:
        """Release the server and end."""
        self._input.close()
        assert self._process.wait(30) == 0
        self._output.close()

    def kill(self) -> None:
        """Die of SIGKILL. Harmless when already gone."""
        self._process.kill()
        self._process.wait(30)
        self._input.close()
        self._output.close()

    def wait(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(30)


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have their background jobs ignore it
    with EmbeddedPostgres(Path(sys.argv[1]), settings=FAST, linger=timedelta(0)) as url:
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
