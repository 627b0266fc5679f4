"""A worker asks only lanes that have something for it: many queues, kinds at their limit and idle kinds cost it nothing."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import psycopg
import pytest

from tests.support.watching import Watched, until
from trueup import App, Limit
from trueup.events import JobCompleted, JobReleased, JobStarted
from trueup.testing.worker import ManualWorker
from trueup.work.worker import Worker

pytestmark = pytest.mark.asyncio

SOON = 5.0  # seconds; asking one queue after another took minutes


class Asked:
    """How often a worker has claimed from each lane, and looked."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lanes: Counter[str] = Counter()
        self.queues: Counter[str] = Counter()
        self.looks = 0
        lanes, jobs = worker.claimer._lanes, worker.claimer._jobs
        claim_lane, claim, waiting = lanes.claim, jobs.claim, lanes.waiting

        async def count_lane(holder: Any, lane: str, *given: Any) -> Any:
            self.lanes[lane] += 1
            return await claim_lane(holder, lane, *given)

        async def count_queue(holder: Any, queue: str, *given: Any) -> Any:
            self.queues[queue] += 1
            return await claim(holder, queue, *given)

        async def count_look(*given: Any) -> Any:
            self.looks += 1
            return await waiting(*given)

        monkeypatch.setattr(lanes, "claim", count_lane)
        monkeypatch.setattr(lanes, "waiting", count_look)
        monkeypatch.setattr(jobs, "claim", count_queue)


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("delay", ["0s", "300ms"])
async def test_a_job_in_one_of_many_queues_is_seen_soon_by_a_worker_with_one_place(
    database_url: str, listen: bool, delay: str
) -> None:
    app = App(database_url, listen=listen, poll_every="500ms", poll_without_listen="500ms")
    seen = Watched(app)

    @app.job(queue="q299")
    async def rare(n: int) -> None: ...

    async with app, app.worker(concurrency=1, queues=[f"q{n}" for n in range(300)]):
        for number in range(2):
            enqueued = time.monotonic()
            await rare.using(delay=delay).enqueue(number)
            await seen.seen(JobCompleted, count=number + 1)
            assert time.monotonic() - enqueued < SOON


async def test_queues_that_all_have_jobs_take_turns_though_there_is_one_place(database_url: str) -> None:
    app, order = App(database_url, prefetch=0), list[str]()
    seen = Watched(app)

    @app.job
    async def note(queue: str) -> None:
        order.append(queue)

    async with app:
        for queue in ("a", "b", "c"):
            await note.using(queue=queue).enqueue_many([(queue,)] * 20)
        async with app.worker(concurrency=1, queues=["a", "b", "c"]):
            await seen.seen(JobCompleted, count=60)
    assert set(Counter(order[:30]).values()) == {10}


async def test_idle_queues_and_kinds_are_not_asked_while_others_are_drained(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(database_url)
    seen = Watched(app)

    @app.job
    async def plain(n: int) -> None: ...

    async def idle() -> None: ...

    for number, controls in enumerate([{"limit": 1}, {"rate": "10/s"}, {"limit": 5, "rate": "1/m"}] * 10):
        app.job(name=f"idle_{number}", **controls)(idle)  # type: ignore[call-overload]

    async with app:
        await plain.enqueue_many([(n,) for n in range(2_000)])
        worker = app.worker(queues=["default", *(f"quiet-{n}" for n in range(10))])
        asked = Asked(worker, monkeypatch)
        async with worker:
            await seen.seen(JobCompleted, kind="plain", count=2_000)
    assert asked.lanes == {}
    assert set(asked.queues) == {"default"}
    assert asked.looks < asked.queues["default"]


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"limit": 1}, {"limit": Limit(total=1, per_key=1), "fair_by": "n"}])
async def test_a_kind_at_its_limit_is_not_asked_until_a_job_ends_and_goes_on_at_once_then(
    database_url: str, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]
) -> None:
    app = App(database_url, poll_every="30s")
    seen, go_on = Watched(app), asyncio.Event()

    @app.job(**limits)
    async def limited(n: int) -> None:
        await go_on.wait()

    async with app:
        workers = [app.worker(), app.worker()]
        asked = [Asked(worker, monkeypatch) for worker in workers]
        async with workers[0], workers[1]:
            await limited.enqueue_many([(n,) for n in range(3)])
            await seen.seen(JobStarted)
            await until(lambda: all(limited.lane in worker.claimer._full for worker in workers))
            before = sum(each.lanes.total() for each in asked)
            await asyncio.sleep(1.5)  # in which each worker asked six times, as six statements each
            # The notification of the jobs may come late, once to each.
            assert sum(each.lanes.total() for each in asked) <= before + len(workers)
            go_on.set()
            await seen.seen(JobCompleted, count=3)


@pytest.mark.parametrize("controls", [{"limit": 2}, {"rate": "1000/s"}])
async def test_a_lane_locked_by_another_claim_is_asked_again_even_when_a_poll_is_due(
    still: App, worker: ManualWorker, database_url: str, controls: dict[str, Any]
) -> None:
    """The look leaves lanes out that rest after a vain claim. One whose rest has just ended was left out, too, and for good."""

    @still.job(**controls)
    async def limited() -> None: ...

    await still.store.lanes.register([limited.lane])
    await limited.enqueue()
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("select from trueup.lanes for update")
        assert await worker.claim() == []
    await until(lambda: worker.worker.claimer._rests.next_in() == 0)
    assert len(await worker.claim()) == 1


async def test_room_that_a_full_worker_cannot_use_goes_to_another(database_url: str) -> None:
    app = App(database_url, poll_every="60s")
    seen, hold, end_first = Watched(app), asyncio.Event(), asyncio.Event()

    @app.job(limit=1)
    async def limited(n: int) -> None:
        if n == 0:
            await end_first.wait()

    @app.job
    async def long(n: int) -> None:
        await hold.wait()

    async with app:
        full, other = app.worker(concurrency=2), app.worker(concurrency=2)
        async with full:
            await limited.enqueue(0)
            await seen.seen(JobStarted, kind="limited")
            await limited.enqueue(1)
            await long.enqueue_many([(n,) for n in range(3)])
            await seen.seen(JobStarted, kind="long")
            async with other:
                await seen.seen(JobStarted, kind="long", count=3)
                hold_on = [run.job.kind for run in other.hand.running.values()]
                assert hold_on == ["long", "long"], "no room here either, until one ends"
                hold.set()
                end_first.set()
                await seen.seen(JobCompleted, kind="limited", count=2)


async def test_what_was_fetched_for_a_quicker_pace_goes_to_a_worker_that_is_idle(database_url: str) -> None:
    app = App(database_url, gather_for="0s")
    seen, go_on = Watched(app), asyncio.Event()

    @app.job
    async def job(n: int, slow: bool) -> None:
        if slow:
            await go_on.wait()

    async with app:
        await job.enqueue_many([(n, False) for n in range(3_000)])
        await job.enqueue_many([(n, True) for n in range(60)])
        quick = app.worker(concurrency=2)
        async with quick:
            await seen.seen(JobCompleted, count=3_000)
            other = app.worker(concurrency=50)
            async with other:
                await until(lambda: len(other.hand.running) == 50, timeout=SOON * 2)
                assert quick.hand.waiting_plain <= 8
                go_on.set()
                await seen.seen(JobCompleted, count=3_060)
    assert all(event.kind == "job" for event in seen.of(JobReleased))


@pytest.mark.parametrize("controls", [{}, {"limit": 2}, {"fair_by": "tenant"}, {"rate": "1000/s"}], ids=str)
async def test_two_long_jobs_run_at_once_where_each_process_has_one_place(
    database_url: str, controls: dict[str, Any]
) -> None:
    """None of them waits behind a long one in a worker that was quick until then, while others have nothing to do."""
    app = App(database_url, gather_for="0s")
    seen, met = Watched(app), asyncio.Barrier(2)

    @app.job(**controls)
    async def work(n: int, tenant: int, long: bool) -> None:
        await (met.wait() if long else asyncio.sleep(0.004))

    async with app:
        await work.enqueue_many([(n, n % 3, False) for n in range(60)])
        await work.enqueue_many([(n, n % 3, True) for n in range(2)])
        async with app.worker(concurrency=1), app.worker(concurrency=1), app.worker(concurrency=1):
            await seen.seen(JobCompleted, count=62)


async def test_a_worker_holds_no_more_jobs_of_a_limited_kind_than_it_has_places(database_url: str) -> None:
    """However quick they are: what waits in its hand counts against the limit, and other workers have places."""
    app = App(database_url, gather_for="0s")
    seen, held = Watched(app), []

    def running() -> int:
        with psycopg.connect(database_url) as connection:
            row = connection.execute("select count(*) from trueup.jobs where state = 'running'").fetchone()
        assert row is not None
        return int(row[0])

    @app.job(limit=10)
    async def work(n: int) -> None:
        held.append(await asyncio.to_thread(running))

    async with app:
        await work.enqueue_many((n,) for n in range(60))
        async with app.worker(concurrency=1):
            await seen.seen(JobCompleted, count=60)
    assert max(held) == 1
