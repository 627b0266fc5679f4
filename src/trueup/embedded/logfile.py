"""The log of a server: appended to by every start, read back when a start fails."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import BinaryIO

ROTATE_AT = 10 * 1024 * 1024  # bytes; one older file is kept, so a forgotten development server cannot fill the disk
TAIL = 4096  # bytes; a failed start says why in its last few lines


def open_to_append(path: Path) -> BinaryIO:
    """Open the log at its end; one that has grown too long is set aside first."""
    if path.exists() and path.stat().st_size > ROTATE_AT:
        path.replace(path.with_name(path.name + ".1"))
    path.touch(mode=0o600)
    return path.open("ab")


def trim(path: Path) -> None:
    """Set aside the content of a log that has grown too long while its writer, which appends, has it open.

    What is written between copying and cutting is lost. Without room for a copy the content is dropped: a bounded log is
    worth more than a complete one.
    """
    try:
        if path.stat().st_size <= ROTATE_AT:
            return
        with contextlib.suppress(OSError):
            shutil.copyfile(path, path.with_name(path.name + ".1"))
        os.truncate(path, 0)
    except FileNotFoundError:
        return  # its directory is being deleted


def tail(path: Path, since: int = 0) -> str:
    """The last lines written after that many bytes, indented to stand under a message."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        size = path.stat().st_size
        log.seek(max(since if since <= size else 0, size - TAIL))  # it may have been trimmed since
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-20:])
