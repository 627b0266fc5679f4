"""Promise 5 of the README: only the database's clock decides. Instances' clocks may be wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.docs.conftest import Terminal
from tests.support.faketime import faketime_env, remove_leftovers
from tests.support.waiting import wait_until
from trueup import App

LONG = 5.0  # seconds: more than two leases
JOBS = """
import asyncio

from trueup import App

app = App()


@app.job
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)
"""
SETTINGS = """
app = "jobs:app"
lease_for = "2s"
rescue_every = "200ms"
concurrency = 5
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(terminal: Terminal) -> Iterator[Terminal]:
    (terminal.directory / "jobs.py").write_text(JOBS)
    (terminal.directory / "trueup.toml").write_text(SETTINGS)
    yield terminal
    terminal.close()
    remove_leftovers()


def enqueue(database_url: str) -> None:
    app = App(database_url)

    @app.job
    async def work(seconds: float) -> None: ...

    work.enqueue_many_sync([(LONG,)] * 6)
    work.using(delay="30m").enqueue_sync(0)
    app.close_sync()


def hours_off(log: str) -> list[float]:
    """How far the clock of each worker is from ours, by the times it wrote down."""
    lines = [json.loads(line) for line in log.splitlines() if "worker started" in line and line.endswith("}")]
    times = [datetime.fromisoformat(line["time"]) for line in lines]
    return [(time - datetime.now(UTC)) / timedelta(hours=1) for time in times]


@pytest.mark.proof(
    beside="tests/apps/addresses/test_processes.py::test_instances_two_with_wrong_clocks_make_one_set_of_jobs_per_tick"
)
def test_workers_whose_clocks_are_wrong_by_an_hour_share_the_work_correctly(fleet: Terminal, database_url: str) -> None:
    for offset in ("+1h", "-1h"):
        fleet.start("worker", **faketime_env(offset, base={}))
    wait_until(lambda: len(hours_off(fleet.output)) == 2, "both workers are up", timeout=30)
    assert {round(hours) for hours in hours_off(fleet.output)} == {-1, 1}, "their clocks are wrong indeed"
    enqueue(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:

        def count(query: str) -> int:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])

        wait_until(lambda: count("select count(*) from trueup.history") == 6, "the due jobs are done", timeout=60)

        assert count("select count(distinct holder) from trueup.history where state = 'done' and errors = '[]'") == 2
        assert count("select count(*) from trueup.history where attempt > 1 or claimed_at < run_at") == 0
        assert count("select count(*) from trueup.jobs where state = 'queued' and attempt = 0") == 1, (
            "due in 30 minutes"
        )
