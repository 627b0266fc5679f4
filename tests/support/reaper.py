"""Ends what a killed test run leaves behind. Servers outlive the process that started them.

Each process of pytest marks its environment, which every process that it starts inherits, and starts a reaper. The reaper waits for
pytest to end, however that happens. Then it ends the processes with the mark, which are none after a run that ended in order, and
removes the data directories of those that were PostgreSQL servers.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

MARK = "PYTEST_STARTED_BY"
PREFIX = "trueup-pg-"  # of directories with a server's data
IN_ORDER = 5.0  # seconds that a server has for cleaning up after itself


def watch() -> int:
    """Start the reaper of this process. Returns the end of a pipe, which stays open for as long as the process lives."""
    os.environ[MARK] = mark = f"{os.getpid()}-{time.time_ns()}"
    ends, stays = os.pipe()
    command = [sys.executable, "-I", "-S", __file__, mark]
    os.posix_spawn(sys.executable, command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, ends, 0)], setsid=True)
    os.close(ends)
    return stays


def marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:  # it has just ended, or is not ours
                continue
    return found


def data_directory(pid: int) -> Path | None:
    """The temporary directory in which a server has its data."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    if "-D" not in words[:-1]:
        return None
    data = Path(words[words.index("-D") + 1])
    return next((each for each in (data, *data.parents) if each.name.startswith(PREFIX)), None)


def reap(mark: str) -> None:
    left = marked(mark)
    directories = {directory for pid in left if (directory := data_directory(pid))}
    for pid in left:
        _send(pid, signal.SIGQUIT)  # PostgreSQL ends at once, and removes its shared memory
    until = time.monotonic() + IN_ORDER
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in left:
        _send(pid, signal.SIGKILL)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.stdin.buffer.read()  # ends with the last process that holds the other end of the pipe
    reap(sys.argv[1])
