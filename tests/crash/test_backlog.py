"""Hundreds of thousands of rows that became due while no worker ran: drained oldest first, in bounded memory, each claim as quick as the first."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.crash.sweeping import Sweeping, sweeping
from tests.crash.sweeps import OPTIONS
from tests.support.matrix import count
from tests.support.processes import WorkerProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DUE = count(40_000, proof=1_000_000)
DRAINED = count(12_000, proof=60_000)  # of them, so that the test ends in seconds
BATCH = 1_000
WARM = 10  # batches until everything is loaded and compiled
BOUND = 24 * 1024  # KiB that the process may grow by after that
OLDEST = "select min(id) from tasks_lease where state = 'pending'"
NEWEST_DONE = "select max(id) from tasks_lease where state = 'done'"


@pytest.fixture
def run(database_url: str, tmp_path: Path) -> Iterator[Sweeping]:
    # The history would be most of the work; what is asked here is in the journal and in the table itself.
    with sweeping(database_url, tmp_path, ["plain"], record=False) as this:
        yield this


def make_due(url: str) -> None:
    """Written in any order, as they come to be over time; the number says how old one is. No statistics are gathered."""
    with psycopg.connect(url) as connection:
        connection.execute("alter table tasks_lease set (autovacuum_enabled = false)")
        connection.execute(
            "insert into tasks_lease (id, changed_at) select n, now() - interval '3 days' + n * interval '1 ms'"
            " from (select n::bigint * 7919 %% %s + 1 as n from generate_series(1, %s) as n) as mixed",
            [DUE, DUE],
        )


def resident(process: WorkerProcess) -> int:
    """KiB of memory that a process has."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def claims(run: Sweeping) -> list[float]:
    """Milliseconds of each full claim so far."""
    return [line["duration_ms"] for line in run.said("row.claimed") if line["count"] == BATCH]


def test_a_backlog_is_drained_oldest_first_in_bounded_memory_at_a_steady_speed(
    run: Sweeping,
) -> None:
    make_due(run.url)
    process = run.workers.launch(**{OPTIONS: f"batch={BATCH},concurrency=100,lease_for=30s"})
    wait_until(lambda: len(claims(run)) >= WARM, "it is under way", timeout=60)
    before = resident(process)
    wait_until(lambda: len(claims(run)) >= DRAINED // BATCH, "part of the backlog is drained", timeout=120)
    grown = resident(process) - before
    run.workers.stop_all()

    taken = claims(run)
    first, last = statistics.median(taken[1 : WARM + 1]), statistics.median(taken[-WARM:])
    print(f"{len(taken)} claims of {BATCH}: {first:.1f} ms at first, {last:.1f} ms at last; {grown} KiB more")
    assert last < 2 * first
    assert grown < BOUND
    done = run.states("lease")["done"]
    assert done >= DRAINED - 2 * BATCH
    # Oldest first: what is done is the beginning of the order, but for what was in hand when it stopped.
    assert run.scalar(NEWEST_DONE) - run.scalar(OLDEST) < 2 * BATCH
    assert run.scalar("select count(*) from tasks_lease where state = 'pending' and id < %s", done - 2 * BATCH) == 0
    assert run.said("service.failed") == []
    assert run.known() == 0, "what was in hand is given back"
