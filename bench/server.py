"""A PostgreSQL of its own for a benchmark: durable settings, as in production, on a fresh directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from trueup.embedded.cluster import Cluster

DURABLE = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "100",
}


@contextmanager
def server(settings: dict[str, str] = DURABLE) -> Iterator[Cluster]:
    """A fresh server; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory:
        cluster = Cluster(Path(directory), settings=settings)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")


def process_seconds(pid: int) -> float:
    """CPU time that a process has taken so far. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(cluster: Cluster) -> float:
    """CPU time that the server's processes have taken so far, those that have ended included. Linux only; elsewhere 0."""
    first = (cluster.data / "postmaster.pid").read_text().split()[0]
    taken = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        parent, own, reaped = fields[1], fields[11:13], fields[13:15]
        if entry.parent.name == first:
            taken += sum(map(int, own + reaped))
        elif parent == first:
            taken += sum(map(int, own))
    return taken / os.sysconf("SC_CLK_TCK")


def wal_bytes(connection: psycopg.Connection[Any]) -> float:
    """Write-ahead log that the server has written so far."""
    row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return float(row[0])
