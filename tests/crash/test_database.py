"""The database goes away and comes back, again and again, while jobs run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from tests.crash.run import Run, run
from tests.support.database import TestServer
from tests.support.matrix import count
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

MIXED = {
    "quick": count(1_000, proof=8_000),
    "transfer": count(300, proof=700),
    "transfer_sync": count(100, proof=300),
    "deliver": count(200, proof=500),
    "flaky": count(200, proof=500),
}
STEP = count(200, proof=500)  # jobs that end between two restarts
BACK_WITHIN = timedelta(seconds=60)


@pytest.fixture
def server_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """A server that may be crashed: what it has confirmed must survive that, unlike on the fast one of other tests."""
    with TestServer(tmp_path_factory.mktemp("pg"), synchronous_commit="on", full_page_writes="on") as server:
        yield server


@pytest.mark.timeout(180)
def test_a_database_restarted_at_once_in_a_loop_loses_and_repeats_nothing(
    server_of_its_own: TestServer, tmp_path: Path
) -> None:
    cluster = server_of_its_own.cluster
    with server_of_its_own.database() as url, run(url, tmp_path, TRUEUP_CONCURRENCY="20") as crash:
        crash.enqueue(**MIXED)
        for _ in range(2):
            crash.workers.start()
        restarts = 0
        while (live := crash.count("select count(*) from trueup.jobs")) and restarts < count(3, proof=8):
            cluster.restart("immediate")
            restarts += 1
            wait_until(partial(fewer_live, crash, live - STEP), f"work goes on after restart {restarts}", timeout=30)
        back_at = crash.now()
        crash.wait_ended()
        crash.prove(fault_ended_at=back_at, within=BACK_WITHIN)
        assert restarts >= 3
        assert crash.states() == {"done": sum(MIXED.values())}
        assert len(crash.events("database.lost")) >= restarts
        assert crash.events("database.restored")


def test_backends_terminated_in_a_loop_lose_and_repeat_nothing(crash: Run) -> None:
    crash.enqueue(quick=1_000, transfer=300, transfer_sync=100, deliver=200, flaky=100, limited=30, choosy=100)
    for _ in range(2):
        crash.workers.start()
    with terminating_backends(crash.url) as terminated:
        wait_until(lambda: len(terminated) >= 60, "sixty backends were terminated", timeout=60)
    ended_at = crash.now()
    crash.wait_ended()
    crash.prove(fault_ended_at=ended_at, within=BACK_WITHIN)
    assert crash.events("database.lost")
    assert crash.events("database.restored")


def fewer_live(crash: Run, most: int) -> bool:
    return crash.count("select count(*) from trueup.jobs") <= max(most, 0)


@contextmanager
def terminating_backends(url: str) -> Iterator[list[int]]:
    """Ends every session of trueup on this database ten times a second; yields the pids of those it ended."""
    terminated: list[int] = []
    enough = threading.Event()

    def loop() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not enough.wait(0.1):
                terminated.extend(
                    pid
                    for (pid,) in connection.execute(
                        "select pid from pg_stat_activity where datname = current_database()"
                        " and application_name like 'trueup%' and pg_terminate_backend(pid)"
                    )
                )

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield terminated
    finally:
        enough.set()
        thread.join()
