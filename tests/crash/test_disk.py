"""The database's disk is full while jobs, rows and ticks are in hand, and has room again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.crash.in_hand import JOBS, InHand, in_hand
from tests.support.database import TEMPLATE, TestServer
from tests.support.small_disk import SmallDisk
from tests.support.waiting import wait_until
from trueup.embedded import nonroot
from trueup.embedded.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NO_ROOM = "No space left on device"


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="trueup-pg-") as directory:
        yield Path(directory)


@pytest.fixture
def disk(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """Servers that are started see it."""
    with SmallDisk(directory / "disk", "64m") as disk:
        monkeypatch.setattr(nonroot, "way", lambda: disk.way)
        yield disk


class Ballast:
    """A table on the small disk in a database that is elsewhere: it can be removed whatever state the disk is in."""

    def __init__(self, cluster: Cluster) -> None:
        self._connection = psycopg.connect(cluster.url(), autocommit=True)
        self._connection.execute("create table ballast (filler text) with (autovacuum_enabled = off) tablespace small")

    def fill(self) -> None:
        """Return when there is not a page left."""
        for rows in (20_000, 1_000, 10, 1):
            with suppress(psycopg.errors.DiskFull):
                while True:
                    self._connection.execute(
                        "insert into ballast select repeat('x', 1000) from generate_series(1, %s)", [rows]
                    )

    def remove(self) -> None:
        self._connection.execute("drop table ballast")

    def close(self) -> None:
        self._connection.close()


def no_room_said(run: InHand, event: str) -> bool:
    return any(NO_ROOM in line["error"] for line in run.said(event))


def lost(run: InHand, process: int) -> bool:
    return any(line["process"] == process for line in run.said("database.lost"))


def test_a_full_disk_is_reported_and_with_room_again_all_work_continues(
    disk: SmallDisk, directory: Path, tmp_path: Path
) -> None:
    with TestServer(directory / "pg") as server:
        disk.run('mkdir "$1"', disk.place / "small")
        with psycopg.connect(server.cluster.url(), autocommit=True) as connection:
            connection.execute(f"create tablespace small location '{disk.place / 'small'}'")
            connection.execute(f"create database full_up template {TEMPLATE} tablespace small strategy file_copy")
        with closing(Ballast(server.cluster)) as ballast, in_hand(server.cluster.url("full_up"), tmp_path) as run:
            run.enqueue(bulky=2)
            claimed = "trueup.jobs where kind = 'bulky' and state = 'running'"
            wait_until(lambda: run.count(claimed) == 2, "those that need room are in hand")
            ballast.fill()
            run.gate.touch()
            for event in ("job.finish_refused", "sweep.failed", "service.failed"):
                wait_until(partial(no_room_said, run, event), f"a worker says {event}", timeout=30)
            with pytest.raises(psycopg.errors.DiskFull):
                while True:
                    run.enqueue(quick=1_000)
            live = run.count("trueup.jobs where kind = 'transfer'")
            assert 0 < live == JOBS - run.count("effects.transferred")
            ballast.remove()
            run.more_work()
            run.wait_ended()
            run.wait_fired(2)
            run.prove()


@pytest.mark.proof(beside="test_a_full_disk_is_reported_and_with_room_again_all_work_continues")
def test_a_server_that_dies_of_a_full_disk_loses_and_repeats_nothing(
    disk: SmallDisk, directory: Path, tmp_path: Path
) -> None:
    server = TestServer(
        directory / "pg", synchronous_commit="on", full_page_writes="on", min_wal_size="32MB", max_wal_size="32MB"
    )
    server.cluster.create()
    disk.run('mv "$1/pg_wal" "$2" && ln -s "$2/pg_wal" "$1/pg_wal"', server.cluster.data, disk.place)
    with server, server.database() as url, in_hand(url, tmp_path) as run:
        disk.run('! cat /dev/zero > "$1/ballast"', disk.place)
        with psycopg.connect(server.cluster.url(), autocommit=True) as connection:
            connection.execute("create table changes (filler text)")
            with pytest.raises(psycopg.OperationalError):
                while True:
                    connection.execute("insert into changes select repeat('x', 1000) from generate_series(1, 2000)")
        wait_until(lambda: not server.cluster.answers(), "the server is down")
        assert 'PANIC:  could not write to file "pg_wal/xlogtemp' in server.cluster.log.read_text()
        for worker in run.workers.alive:
            wait_until(partial(lost, run, worker.pid), f"worker {worker.pid} says so")
        run.gate.touch()
        disk.run('rm "$1/ballast"', disk.place)
        server.cluster.start()
        run.more_work()
        run.wait_ended()
        run.wait_fired(2)
        run.prove()
