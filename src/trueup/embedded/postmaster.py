"""The process that serves a data directory: the content of `postmaster.pid`, and whether it is still true.

A killed server leaves the file behind, and its process id may belong to any other process by then. So the file counts only
if that process really works in this data directory.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from trueup.embedded import processes


@dataclass(frozen=True)
class Postmaster:
    """A running server, as `postmaster.pid` describes it."""

    pid: int
    port: int
    socket_directory: Path
    status: str  # starting, ready, stopping; empty in the first moments

    @property
    def ready(self) -> bool:
        return self.status == "ready"


def running(data: Path) -> Postmaster | None:
    """The server of this data directory, or None when none is running."""
    recorded = read(data)
    return recorded if recorded is not None and serves(recorded.pid, data) else None


def read(data: Path) -> Postmaster | None:
    """The content of `postmaster.pid`, true or not; None when there is no such file, or it is still being written."""
    try:
        lines = [line.strip() for line in os.fsdecode(pid_file(data).read_bytes()).split("\n")]
        pid, _, _, port, socket_directory = lines[:5]
        return Postmaster(int(pid), int(port), Path(socket_directory), status=lines[7] if len(lines) > 7 else "")
    except (FileNotFoundError, ValueError):
        return None


def pid_file(data: Path) -> Path:
    return data / "postmaster.pid"


def serves(pid: int, data: Path) -> bool:
    """Whether this process is the server of this data directory."""
    works_there = processes.works_in(pid, data)
    if works_there is not None:
        return works_there
    # No /proc, or no permission to read it: the server runs as another user, and this container's root may not inspect it.
    return f"-D {data} " in processes.command(pid)


def cluster_name(data: Path) -> str:
    """The cluster name of the server, which tells its processes from those of other servers."""
    return f"trueup-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"


def orphans(data: Path) -> list[int]:
    """Processes of this data directory's server that outlived their postmaster."""
    title = f"postgres: {cluster_name(data)}: "
    return [
        process.pid
        for process in processes.table().values()
        if processes.command(process.pid).startswith(title) and "/postgres -D " not in processes.command(process.parent)
    ]
