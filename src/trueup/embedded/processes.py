"""The process table, as far as control of a server needs it: from /proc, or from `ps` where there is no /proc."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    state: str  # the system's letters; a first Z is a zombie: dead, but not yet waited for


def table() -> dict[int, Process]:
    """Every process there is, by pid."""
    rows = _from_proc() if _has_proc() else _from_ps()
    return {process.pid: process for process in rows}


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    process = table().get(pid)
    return process is not None and not process.state.startswith("Z")


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    return [process.pid for process in table().values() if process.parent == pid]


def works_in(pid: int, directory: Path) -> bool | None:
    """Whether that is the process's working directory; None when it is gone, a zombie, or may not be inspected."""
    try:
        return (PROC / str(pid) / "cwd").samefile(directory)
    except OSError:
        return None


def command(pid: int) -> str:
    """The process's command line, its words separated by spaces; empty when it is gone or a zombie."""
    if _has_proc():
        try:
            return os.fsdecode((PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")).strip()
        except OSError:
            return ""
    return _ps("-p", str(pid), "-o", "command=").strip()


def _has_proc() -> bool:
    return (PROC / "self" / "stat").exists()


def _from_proc() -> Iterator[Process]:
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue  # ended while we looked
        # The name in parentheses may itself hold spaces and parentheses; what follows the last one is regular.
        state, parent, *_ = stat.rpartition(")")[2].split()
        yield Process(int(entry.name), int(parent), state)


def _from_ps() -> Iterator[Process]:
    for line in _ps("-axo", "pid=,ppid=,state=").splitlines():
        pid, parent, state = line.split()
        yield Process(int(pid), int(parent), state)


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], capture_output=True, text=True, errors="replace", check=False).stdout
