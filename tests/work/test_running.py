"""A real worker in this process: timeouts, threads, cancellation, stopping, concurrency."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import pairwise
from multiprocessing import get_context

import pytest

from tests.support.matrix import count
from tests.support.watching import Watched, until
from trueup import App, Context, JobCancelled, JobFailed, Retry, injected
from trueup.events import (
    JobCompleted,
    JobDropped,
    JobReleased,
    JobRetried,
    JobStarted,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from trueup.work.jobs.runner import STARTS_PER_TURN

pytestmark = pytest.mark.asyncio

ONCE = Retry(max_attempts=1)


@contextmanager
def gate() -> Iterator[threading.Event]:
    """What threads wait for; opened at the latest when the test ends, so that none is left."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


async def test_an_async_handler_over_its_timeout_is_cancelled_and_failed(app: App, events: Watched) -> None:
    cancelled = asyncio.Event()

    @app.job(timeout="50ms", retry=ONCE)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with app.worker():
        job = await slow.enqueue()
        with pytest.raises(JobFailed, match="timeout of 50ms"):
            await job.result(timeout="15s")
    assert cancelled.is_set()


async def test_a_thread_over_its_timeout_is_told_and_left_behind_without_taking_a_place(app: App) -> None:
    told = threading.Event()

    with gate() as let_go:

        @app.job(timeout="50ms", retry=ONCE)
        def hangs(ctx: Context = injected) -> None:
            if ctx.lost.wait_sync(10):
                told.set()
            let_go.wait(10)

        @app.job
        def quick() -> str:
            return "ran"

        async with app.worker(concurrency=1) as worker:
            job = await hangs.enqueue()
            with pytest.raises(JobFailed, match="timeout"):
                await job.result(timeout="15s")
            await until(told.is_set)
            assert worker.runner.caller.threads_busy == 1
            assert await (await quick.enqueue()).result(timeout="15s") == "ran"
            let_go.set()
            await until(lambda: worker.runner.caller.threads_busy == 0)


async def test_what_one_job_leaves_in_context_variables_the_next_does_not_see(app: App) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

    @app.job
    async def leave(name: str) -> str:
        seen = tenant.get()
        tenant.set(name)
        return seen

    @app.job
    def leave_in_a_thread(name: str) -> str:
        seen = tenant.get()
        tenant.set(name)
        return seen

    async with app.worker(concurrency=1):
        jobs = [await each.enqueue(f"tenant {n}") for n in range(5) for each in (leave, leave_in_a_thread)]
        assert {await job.result(timeout="15s") for job in jobs} == {"nobody"}


def cube(n: int) -> int:
    return n**3


async def test_a_plain_function_runs_on_the_executor_it_names(app: App) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        job = await app.job(executor=pool)(cube).enqueue(3)
        async with app.worker():
            assert await job.result(timeout="30s") == 27


async def test_jobs_can_be_enqueued_from_a_thread(app: App) -> None:
    @app.job
    async def double(n: int) -> int:
        return 2 * n

    async with app.worker():
        handles = await asyncio.gather(*(asyncio.to_thread(double.enqueue_sync, n) for n in range(10)))
        assert [await job.result(timeout="15s") for job in handles] == [2 * n for n in range(10)]


async def test_a_queues_own_concurrency_is_used_up_and_never_exceeded(database_url: str) -> None:
    app = App(database_url, poll_every="60s")  # a worker that stalls until its next poll is too late for this test
    running: Counter[str] = Counter()
    peak: Counter[str] = Counter()

    async def work(name: str) -> None:
        running[name] += 1
        peak[name] = max(peak[name], running[name])
        await asyncio.sleep(0.01)
        running[name] -= 1

    @app.job(queue="mail")
    async def mail() -> None:
        await work("mail")

    @app.job(queue="fast")
    async def fast() -> None:
        await work("fast")

    await mail.enqueue_many([()] * 60)
    await fast.enqueue_many([()] * 60)
    events = Watched(app)
    async with app.worker(queues={"mail": 2, "fast": None}, concurrency=6):
        await events.seen(JobCompleted, count=120)
    assert peak["mail"] == 2
    assert 2 < peak["fast"] <= 6
    await app.close()


async def test_jobs_that_never_wait_leave_the_loop_to_others_between_a_few_of_them(app: App) -> None:
    """However many runners there are: the claimer, the finisher and the application itself live in the same loop."""
    jobs, ran = 3_000, 0

    @app.job
    async def instant() -> None:
        nonlocal ran
        ran += 1

    await instant.enqueue_many([()] * jobs)
    most = 0
    async with app.worker(concurrency=100):
        async with asyncio.timeout(60):
            while ran < jobs:
                before = ran
                await asyncio.sleep(0)
                most = max(most, ran - before)
    assert 0 < most <= 2 * STARTS_PER_TURN  # a turn of this task may touch two of theirs


async def test_long_jobs_are_not_hoarded_by_the_worker_that_came_first(app: App, database_url: str) -> None:
    other = App(database_url)
    ran: Counter[str] = Counter()
    release = asyncio.Event()

    for name, each in (("first", app), ("second", other)):

        def declare(name: str, each: App) -> None:
            @each.job(name="long")
            async def long() -> None:
                ran[name] += 1
                await release.wait()

        declare(name, each)
    long = app.registry["long"]
    await long.enqueue_many([()] * 4)
    async with app.worker(concurrency=2), other.worker(concurrency=2):
        await until(lambda: ran == {"first": 2, "second": 2})
        release.set()
    await other.close()


@pytest.mark.parametrize("listen", [True, False], ids=["notified", "polling"])
async def test_a_running_job_that_is_cancelled_stops(
    database_url: str, listen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.stopper.EVERY", 0.2 if not listen else 60)
    app = App(database_url, listen=listen)
    events = Watched(app)

    @app.job
    async def endless() -> None:
        await asyncio.Event().wait()

    async with app.worker():
        job = await endless.enqueue()
        await events.seen(JobStarted)
        asked = await app.jobs.cancel([job])
        assert asked.asked == {job}
        with pytest.raises(JobCancelled, match="stopped"):
            await job.result(timeout="15s")
        await events.seen(JobDropped, job_id=job)
    await app.close()


async def test_a_pending_cancellation_stops_the_job_once_its_worker_listens_again(
    app: App, events: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.stopper.EVERY", 60)

    @app.job
    async def endless() -> None:
        await asyncio.Event().wait()

    async with app.worker() as worker:
        await until(lambda: worker.claimer.listening)
        job = await endless.enqueue()
        await events.seen(JobStarted)
        listening = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'trueup listen'"
        async with app.store.pool.use() as connection, connection.transaction():  # both at once: nobody hears of it
            await connection.execute(listening)
            await connection.execute("update trueup.jobs set cancel_requested_at = now()")
        with pytest.raises(JobCancelled, match="stopped"):
            await job.result(timeout="15s")


async def test_a_queued_job_that_is_cancelled_never_runs(app: App, events: Watched) -> None:
    @app.job
    async def later() -> None: ...

    job = await later.using(delay="1h").enqueue()
    assert (await app.jobs.cancel([job])).cancelled == {job}
    with pytest.raises(JobCancelled):
        await job.result()
    assert not events.of(JobStarted)


async def test_stopping_waits_for_running_jobs_and_gives_back_the_rest(app: App, events: Watched) -> None:
    finish = asyncio.Event()

    @app.job
    async def patient() -> str:
        await finish.wait()
        return "in peace"

    jobs = [await patient.enqueue() for _ in range(3)]
    worker = app.worker(concurrency=1)
    await worker.start()
    await events.seen(JobStarted)
    stopping = asyncio.create_task(worker.stop())
    await events.seen(WorkerStopping)
    finish.set()
    await stopping
    assert [event.job_id for event in events.of(JobCompleted)] == [jobs[0]]
    views = [await app.store.views.job(job) for job in jobs]
    assert [(view["state"], view["attempt"]) for view in views if view] == [("done", 1), ("queued", 0), ("queued", 0)]
    assert await app.store.views.workers() == []


async def test_what_does_not_end_in_time_is_cancelled_and_handed_back_with_its_attempt(
    app: App, events: Watched
) -> None:
    @app.job
    async def endless() -> None:
        await asyncio.Event().wait()

    job = await endless.enqueue()
    worker = app.worker()
    await worker.start()
    await events.seen(JobStarted)
    stopped = await worker.stop(drain_for=timedelta(milliseconds=50))
    assert (stopped.released, stopped.abandoned) == (1, 0)
    assert [event.job_id for event in events.of(JobReleased)] == [job]
    view = await app.store.views.job(job)
    assert view is not None
    assert (view["state"], view["attempt"], view["errors"]) == ("queued", 0, [])


@pytest.mark.parametrize(("process_ends", "expected"), [(True, ("queued", 0)), (False, ("running", 1))])
async def test_a_handler_that_ignores_its_cancellation_is_handed_back_if_the_process_ends(
    app: App, events: Watched, monkeypatch: pytest.MonkeyPatch, process_ends: bool, expected: tuple[str, int]
) -> None:
    """Otherwise it goes on, and nobody else may begin before its lease has passed."""
    monkeypatch.setattr("trueup.work.worker.LAST_WORD", 0.3)
    deaf = asyncio.Event()

    @app.job
    async def stubborn() -> None:
        while not deaf.is_set():
            try:
                await deaf.wait()
            except asyncio.CancelledError:
                continue

    job = await stubborn.enqueue()
    worker = app.worker()
    worker.process_ends = process_ends
    await worker.start()
    await events.seen(JobStarted)
    stopped = await worker.stop(drain_for=timedelta())
    view = await app.store.views.job(job)
    deaf.set()
    assert (stopped.released, stopped.abandoned) == (0, 1)
    assert view is not None
    assert (view["state"], view["attempt"]) == expected
    await until(lambda: not worker.hand.running)


async def test_a_second_request_to_stop_means_now(app: App, events: Watched) -> None:
    @app.job
    async def endless() -> None:
        await asyncio.Event().wait()

    await endless.enqueue()
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await events.seen(JobStarted)
    worker.request_stop()
    await events.seen(WorkerStopping)
    worker.request_stop()
    stopped = await asyncio.wait_for(running, 15)  # far less than the 25 s it would drain
    assert stopped.released == 1


async def test_a_worker_stopped_twice_at_once_stops_once(app: App, events: Watched) -> None:
    @app.job
    async def noop() -> None: ...

    worker = app.worker()
    await worker.start()
    await (await noop.enqueue()).result(timeout="15s")
    await asyncio.gather(worker.stop(), worker.stop())
    await worker.stop()
    assert events.of(WorkerStopped)


async def test_workers_that_are_stopped_as_soon_as_they_are_started_stop(app: App, events: Watched) -> None:
    for _ in range(10):
        async with app.worker():
            pass
    assert len(events.of(WorkerStopped)) == 10


async def test_retries_of_a_running_worker_come_when_they_are_due(app: App, events: Watched) -> None:
    starts: list[float] = []

    @app.job(retry=Retry(max_attempts=3, first="200ms", factor=1))
    async def flaky() -> None:
        starts.append(time.monotonic())
        if len(starts) < 3:
            raise OSError("try again")

    async with app.worker():
        await (await flaky.enqueue()).result(timeout="15s")
    assert [event.delay_ms for event in events.of(JobRetried)] == [200, 200]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert all(0.199 <= gap < 1.5 for gap in gaps), gaps


@pytest.mark.slow
async def test_workers_started_and_stopped_many_times_at_once_leave_nothing_behind(app: App) -> None:
    times, at_once = count(3, proof=5), count(5, proof=10)

    @app.job
    async def noop() -> None: ...

    def sync_noop() -> None: ...

    in_thread = app.job(name="in_thread")(sync_noop)
    events = Watched(app)
    await app.open()

    async def again_and_again() -> None:
        for _ in range(times):
            async with app.worker(concurrency=2):
                await noop.enqueue()
                await in_thread.enqueue()

    await asyncio.gather(*(again_and_again() for _ in range(at_once)))
    async with app.worker():
        await until(lambda: len(events.of(JobCompleted)) == 2 * times * at_once)
    assert len(events.of(WorkerStarted)) == len(events.of(WorkerStopped)) == times * at_once + 1
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("trueup ")] == []
    await until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("trueup ")])
    open_still = (
        b"select application_name from pg_stat_activity where datname = current_database()"
        b" and application_name like 'trueup%%' and application_name <> 'trueup pool'"
    )
    async with asyncio.timeout(10):
        while await app.store.pool.fetch(open_still):  # a server takes a moment to let a connection go
            await asyncio.sleep(0.01)
    assert await app.store.views.workers() == []
