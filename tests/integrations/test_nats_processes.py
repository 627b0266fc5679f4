"""Worker processes that are killed or stopped while they publish to a real server."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from apps.servers.nats import NatsServer
from tests.integrations import publishing
from tests.integrations.broker import stored
from tests.support.matrix import count
from tests.support.processes import Fleet, WorkerProcess
from tests.support.waiting import wait_until
from trueup import App

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[NatsServer]:
    with NatsServer() as broker:
        yield broker


class Works:
    """Worker processes that publish, the database they work on, and the server."""

    def __init__(self, url: str, broker: NatsServer, fleet: Fleet) -> None:
        self.url = url
        self.broker = broker
        self.fleet = fleet

    def make_stream(self) -> None:
        async def make() -> None:
            async with App(self.url) as app:
                await publishing.declare(app, self.broker.url).ensure_stream()

        asyncio.run(make())

    def enqueue(self, count: int, beginning: int = 0) -> None:
        app = App(self.url)
        publish = publishing.declare(app, self.broker.url).publish
        publish.enqueue_many_sync([("orders.paid", {"order": n}) for n in range(beginning, beginning + count)])
        app.close_sync()

    def states(self) -> dict[str, int]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            every = "(select state from trueup.jobs union all select state from trueup.history) as every"
            return dict(connection.execute(f"select state, count(*) from {every} group by state".encode()).fetchall())

    def attempts(self) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return [row[0] for row in connection.execute("select attempt from trueup.history order by id")]

    def wait_done(self, count: int) -> None:
        wait_until(lambda: self.states() == {"done": count}, f"{count} are done", timeout=60)

    def orders(self) -> list[bytes]:
        return sorted(message.data for message in asyncio.run(stored(self.broker)))


@pytest.fixture
def works(database_url: str, broker: NatsServer, tmp_path: Path) -> Iterator[Works]:
    module = "tests.integrations.publishing"
    with Fleet(module, database_url, tmp_path, BROKER=broker.url, TRUEUP_LOG_FORMAT="json") as fleet:
        works = Works(database_url, broker, fleet)
        works.make_stream()
        yield works


def expected(count: int) -> list[bytes]:
    return sorted(b'{"order":%d}' % n for n in range(count))


def test_a_worker_killed_after_the_ack_and_before_the_end_of_the_job_publishes_once(works: Works) -> None:
    works.enqueue(1)
    victim = works.fleet.launch(fault="after_handler:kill", TRUEUP_LEASE_FOR="1s")
    works.fleet.expect_killed(victim)
    assert works.states() == {"running": 1}
    assert works.orders() == expected(1), "the fault landed after the ack"
    heir = works.fleet.start()
    works.wait_done(1)
    assert works.attempts() == [2]
    assert works.orders() == expected(1)
    assert heir.said.count("NATS had this message already") == 1
    works.fleet.stop_all()
    assert "ignored" not in heir.said, heir.said


def test_workers_and_server_killed_in_turn_lose_and_repeat_nothing(works: Works) -> None:
    half = count(150, proof=500)
    works.enqueue(half)
    first = works.fleet.start(TRUEUP_LEASE_FOR="1s")
    works.fleet.start(TRUEUP_LEASE_FOR="1s")
    wait_until(lambda: works.states().get("done", 0) > 20, "some are done")
    works.broker.kill()
    works.enqueue(half, beginning=half)
    wait_until(lambda: "job retried" in first.said, "it tries in vain")
    works.fleet.kill(first)
    assert works.states()["done"] <= half
    works.broker.start()
    works.wait_done(2 * half)
    works.fleet.stop_all()
    assert works.orders() == expected(2 * half)


@pytest.mark.parametrize("away", ["killed", "hanging"])
def test_a_server_that_is_away_does_not_hold_up_the_end_of_a_worker(works: Works, away: str) -> None:
    works.enqueue(20)
    worker = works.fleet.start()
    works.wait_done(20)
    if away == "killed":
        works.broker.kill()
        _stop(works, worker)
    else:
        with works.broker.hanging():
            _stop(works, worker)


def _stop(works: Works, worker: WorkerProcess) -> None:
    works.enqueue(1)
    wait_until(lambda: works.states().get("running") or "job retried" in worker.said, "it is being published")
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    assert time.monotonic() - began < 15
    assert "ignored" not in worker.said, worker.said
    assert not any(line.startswith("Traceback") for line in worker.said.splitlines()), worker.said
