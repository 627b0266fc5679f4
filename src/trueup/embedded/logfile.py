"""The log of a server: appended to by every start, read back when a start fails."""

from __future__ import annotations

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


def tail(path: Path, since: int = 0) -> str:
    """The last lines written after that many bytes, indented to stand under a message."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(since, path.stat().st_size - TAIL))
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-20:])
