"""A PostgreSQL of its own for a benchmark: durable settings, as in production, on a fresh directory."""

from __future__ import annotations

import os
import re
import subprocess
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

RECORDS = {  # what a record of the write-ahead log is about, by how its type begins; the first that fits
    "row versions": ("Heap/INSERT", "Heap/UPDATE", "Heap/HOT_UPDATE", "Heap2/MULTI_INSERT"),
    "deletions": ("Heap/DELETE",),
    "row locks": ("Heap/LOCK", "Heap2/LOCK_UPDATED"),
    "index entries": ("Btree/",),
}
FULL_PAGES, OTHER_RECORDS = "full pages", "others"


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


def wal_position(connection: psycopg.Connection[Any]) -> str:
    """Where the server's log ends, which it has written to disk up to there, also without `synchronous_commit`."""
    row = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    with connection.transaction():
        connection.execute("set local synchronous_commit = on")
        connection.execute("select pg_logical_emit_message(true, 'written', '')")
    return str(row[0])


def wal_records(cluster: Cluster, start: str, end: str) -> dict[str, int]:
    """The bytes of log between two positions, by what they are about. A page's first change after a checkpoint is a full page."""
    command = (cluster.programs / "pg_waldump", "--path", cluster.data / "pg_wal", "--start", start, "--end", end)
    said = subprocess.run([*command, "--stats=record"], capture_output=True, text=True, check=True).stdout
    found = dict.fromkeys([*RECORDS, FULL_PAGES, OTHER_RECORDS], 0)
    line = re.compile(r"^(\S+/\S+) +\d+ \(.*?\) +(\d+) \(.*?\) +(\d+) \(.*?\)", re.MULTILINE)
    for kind, size, pages in line.findall(said):
        about = next((name for name, begins in RECORDS.items() if kind.startswith(begins)), OTHER_RECORDS)
        found[about] += int(size)
        found[FULL_PAGES] += int(pages)
    return found
