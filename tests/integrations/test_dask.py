"""Handlers on a real Dask cluster: its workers that die, its scheduler that restarts, and what cannot be interrupted."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integrations.dask_handlers import cube, die, fail, note, wait_for
from tests.support.dask_fleet import Fleet, Forker
from tests.support.watching import Watched, until
from trueup import App, JobFailed, Retry
from trueup.errors import ConfigError
from trueup.events import ExecutorBroken, JobSnoozed, WorkerLeaseLost
from trueup.integrations.dask import Dask, DaskExecutor

pytestmark = pytest.mark.slow

ONCE = Retry(max_attempts=1)
WITHIN = 60.0  # seconds, on a busy machine


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    with Forker(tmp_path_factory.mktemp("dask")) as forker:
        yield forker


@pytest.fixture(scope="module")
def shared(forker: Forker) -> Iterator[Fleet]:
    """A cluster of two threads that stays as it is."""
    with Fleet(forker) as fleet:
        fleet.start_scheduler()
        fleet.start_worker()
        fleet.start_worker()
        yield fleet


@pytest.fixture
def own(forker: Forker) -> Iterator[Fleet]:
    """A cluster whose processes the test starts and kills."""
    with Fleet(forker) as fleet:
        yield fleet


class Made:
    """The factory that jobs name; it remembers the executor that the worker has made."""

    def __init__(self, fleet: Fleet, **options: Any) -> None:
        self._dask = Dask(fleet.address, **options)
        self.executors: list[DaskExecutor] = []

    def __call__(self) -> DaskExecutor:
        self.executors.append(self._dask())
        return self.executors[-1]

    @property
    def places(self) -> int:
        return self.executors[-1].places if self.executors else 0


@pytest_asyncio.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    async with App(database_url, lease_for="3s", rescue_every="200ms") as app:
        yield app


@pytest.fixture
def events(app: App) -> Watched:
    return Watched(app)


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[int]]:
    """The processes that have called a handler so far."""
    return lambda: [int(line) for line in lines(tmp_path / "calls")]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def attempt(app: App, handle: Any) -> tuple[str, int]:
    row = await app.store.views.job(int(handle)) or {}
    return row["state"], row["attempt"]


@pytest.mark.asyncio
async def test_calls_run_in_the_cluster_each_of_them_once(
    app: App, shared: Fleet, tmp_path: Path, calls: Callable[[], list[int]]
) -> None:
    """Equal calls too, which Dask by itself takes for one."""
    made = Made(shared)
    noted, cubed, failing = (app.job(executor=made, retry=ONCE)(function) for function in (note, cube, fail))
    async with app.worker():
        equal = [await noted.enqueue(str(tmp_path / "calls")) for _ in range(6)]
        results = [await handle.result("60s") for handle in equal]
        assert await (await cubed.enqueue(3)).result("60s") == 27
        with pytest.raises(JobFailed, match="no use"):
            await (await failing.enqueue("no use")).result("60s")
        await until(lambda: made.places == 2, WITHIN)
    assert sorted(calls()) == sorted(results)
    assert set(results) <= set(shared.workers)
    assert len(made.executors) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("ended_by", ["timeout", "cancel"])
async def test_a_call_that_nobody_waits_for_keeps_its_place_until_it_returns(
    app: App, shared: Fleet, tmp_path: Path, calls: Callable[[], list[int]], ended_by: str
) -> None:
    made = Made(shared, places=1)
    slow = app.job(executor=made, retry=ONCE, timeout="1s" if ended_by == "timeout" else None)(wait_for)
    good = app.job(executor=made, retry=ONCE)(cube)
    async with app.worker() as worker:
        handle = await slow.enqueue(str(tmp_path / "calls"), str(tmp_path / "gate"))
        await until(calls, WITHIN)
        if ended_by == "cancel":
            await app.jobs.cancel([int(handle)])
        with pytest.raises(JobFailed):
            await handle.result("60s")
        (pool,) = worker.runner.caller.pools._pools.values()
        assert len(pool._left_behind) == 1
        after = await good.enqueue(2)
        assert (await attempt(app, after))[1] <= 1
        (tmp_path / "gate").touch()
        assert await after.result("60s") == 8
    assert len(calls()) == 1
    assert len(made.executors) == 1, "a new connection would not end the call"


@pytest.mark.asyncio
async def test_after_a_lost_lease_the_job_runs_beside_the_old_call_and_only_the_new_counts(
    app: App, shared: Fleet, events: Watched, tmp_path: Path, calls: Callable[[], list[int]]
) -> None:
    job = app.job(executor=Made(shared), retry=Retry(max_attempts=3, first="10ms"))(wait_for)
    async with app.worker():
        handle = await job.enqueue(str(tmp_path / "calls"), str(tmp_path / "gate"))
        await until(calls, WITHIN)
        async with app.transaction() as tx:
            await tx.execute("update trueup.workers set lease_until = now() - interval '1 second'")
        await events.seen(WorkerLeaseLost)
        await until(lambda: len(calls()) == 2, WITHIN)
        (tmp_path / "gate").touch()
        assert await handle.result("60s") == calls()[1]
    assert (await attempt(app, handle))[0] == "done"


@pytest.mark.asyncio
async def test_a_worker_that_stops_hands_the_job_back_and_does_not_wait_for_the_cluster(
    app: App, shared: Fleet, tmp_path: Path, calls: Callable[[], list[int]]
) -> None:
    job = app.job(executor=Made(shared), retry=ONCE)(wait_for)
    try:
        async with app.worker() as worker:
            handle = await job.enqueue(str(tmp_path / "calls"), str(tmp_path / "gate"))
            await until(calls, WITHIN)
            began = time.monotonic()
            await worker.stop(timedelta(milliseconds=100))
        assert time.monotonic() - began < 30  # the call takes a minute
        assert await attempt(app, handle) == ("queued", 0)
    finally:
        (tmp_path / "gate").touch()
        await until((tmp_path / "calls.ended").exists, WITHIN)  # its files go with the test


@pytest.mark.asyncio
async def test_a_killed_dask_worker_costs_no_attempt_and_a_call_that_kills_them_does(
    app: App, own: Fleet, events: Watched, tmp_path: Path, calls: Callable[[], list[int]]
) -> None:
    made = Made(own)
    slow, deadly = app.job(executor=made, retry=ONCE)(wait_for), app.job(executor=made, retry=ONCE)(die)
    own.start_scheduler()
    own.start_worker()
    async with app.worker():
        handle = await slow.enqueue(str(tmp_path / "calls"), str(tmp_path / "gate"))
        await until(calls, WITHIN)
        own.kill(calls()[0])
        own.start_worker()
        await until(lambda: len(calls()) == 2, WITHIN)  # Dask runs it again
        (tmp_path / "gate").touch()
        assert await handle.result("60s") == calls()[1]
        assert await attempt(app, handle) == ("done", 1)
        own.start_worker()
        await until(lambda: made.places == 2, WITHIN)
        poison = await deadly.enqueue(str(tmp_path / "deaths"))
        with pytest.raises(JobFailed, match="every Dask worker that ran it died"):
            await poison.result("60s")
        assert len(lines(tmp_path / "deaths")) == 2
        await until(lambda: made.places == 0, WITHIN)
        waiting = await slow.enqueue(str(tmp_path / "calls"), str(tmp_path / "gate"))
        own.start_worker()
        await waiting.result("60s")
        assert await attempt(app, waiting) == ("done", 1)
    assert events.of(ExecutorBroken) == []


@pytest.mark.asyncio
async def test_jobs_outlive_a_scheduler_that_is_away_at_the_start_and_one_that_restarts(
    app: App,
    own: Fleet,
    events: Watched,
    tmp_path: Path,
    calls: Callable[[], list[int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Made(own, connect_timeout="1s")
    job = app.job(executor=made, retry=ONCE)(wait_for)

    @app.job
    async def plain(n: int) -> int:
        return n

    async with app.worker():
        handle = await job.enqueue(str(tmp_path / "calls"), str(tmp_path / "gate"))
        await until(lambda: "Dask scheduler unreachable" in caplog.messages, WITHIN)
        assert await (await plain.enqueue(7)).result("60s") == 7
        assert await attempt(app, handle) == ("queued", 0)
        own.start_scheduler()
        own.start_worker()
        await until(calls, WITHIN)
        own.kill_scheduler()
        await events.seen(JobSnoozed, job_id=int(handle))
        assert await attempt(app, handle) == ("queued", 0)
        own.start_scheduler()
        own.start_worker()
        await until(lambda: len(calls()) == 2, WITHIN)
        (tmp_path / "gate").touch()
        assert await handle.result("60s") == calls()[1]
        assert await attempt(app, handle) == ("done", 1)
    assert [event.replaced for event in events.of(ExecutorBroken)] == [False]
    assert len(made.executors) == 1


@pytest.mark.asyncio
async def test_the_executor_of_dasks_own_client_is_refused_with_the_one_to_use(app: App, shared: Fleet) -> None:
    from distributed import Client

    async with Client(shared.address, asynchronous=True, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        with pytest.raises(ConfigError, match=r"trueup\.integrations\.dask\.Dask"):
            app.job(executor=client.get_executor())(cube)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "the address of a scheduler"),
        ({"address": "tcp://x:1", "scheduler_file": "y"}, "the address of a scheduler"),
        ({"address": "tcp://x:1", "places": 0}, "places="),
        ({"address": "tcp://x:1", "places": True}, "places="),
        ({"address": "tcp://x:1", "connect_timeout": "soon"}, "soon"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Dask(**given)


def test_an_executor_by_itself_runs_calls_and_waits_for_them_when_it_is_shut_down(shared: Fleet) -> None:
    with Dask(shared.address)() as executor:
        while not executor.places:
            time.sleep(0.01)
        ended = [executor.submit(cube, n) for n in range(3)]
    assert [future.result(0) for future in ended] == [0, 1, 8]
    executor.shutdown()
