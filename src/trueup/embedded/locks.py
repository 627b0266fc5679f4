"""Locks on files, which the kernel releases when their holder dies for any reason."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Self

if sys.platform != "win32":  # importable everywhere, so that an unsupported platform gets our error and no ImportError
    import fcntl

POLL = 0.02  # seconds between two tries


class FileLock:
    """A lock held until `release`, or until the process is gone.

    A forked child shares the hold: it ends when parent and child have both released it. Neither can end it for the other,
    which is why releasing means closing and never unlocking: an unlock would reach through to the other's descriptor.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock. Harmless when already released."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def fileno(self) -> int:
        assert self._descriptor is not None, "released"
        return self._descriptor

    def write(self, text: str) -> None:
        """Replace the content of the locked file."""
        os.ftruncate(self.fileno(), 0)
        os.pwrite(self.fileno(), text.encode(), 0)

    def in_place(self) -> bool:
        """Whether the path still names the file that is locked: no longer once its directory was deleted or made anew."""
        try:
            return os.path.samestat(os.fstat(self.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path, *, shared: bool = False) -> FileLock | None:
    """Lock the file, made if need be, without waiting; None when another hold is in the way."""
    taken = FileLock(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.flock(taken.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        if taken.in_place():
            return taken
    except BlockingIOError:
        pass
    taken.release()
    return None


def lock(path: Path, *, shared: bool = False, within: float) -> FileLock:
    """Lock the file, and wait until it is free. Raises TimeoutError after that many seconds."""
    deadline = time.monotonic() + within
    while True:
        held = try_lock(path, shared=shared)
        if held is not None:
            return held
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is still locked by another process after {within:.0f} s")
        time.sleep(POLL)


def is_locked(path: Path) -> bool:
    """Whether a process holds the file exclusively."""
    if not path.exists():
        return False
    probe = try_lock(path, shared=True)
    if probe is None:
        return True
    probe.release()
    return False


def sharers(path: Path) -> frozenset[int] | None:
    """The processes that took a shared lock on the file, or None where the system does not tell (only Linux does)."""
    if not path.exists():
        return frozenset()
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    inode = path.stat().st_ino
    return frozenset(
        int(row[4]) for row in rows if row[1] == "FLOCK" and row[3] == "READ" and row[5].endswith(f":{inode}")
    )
