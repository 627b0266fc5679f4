"""What becomes of a job after its handler's run: steps called one by one, time moved by hand."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.support.watching import Watched
from trueup import App, Context, Discard, GiveUp, JobCancelled, JobFailed, ResultTimeout, Retry, Snooze, injected
from trueup.events import JobReleased, JobResultDropped
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


async def view(app: App, job_id: int) -> dict[str, Any]:
    found = await app.store.views.job(job_id)
    assert found is not None
    return found


async def test_each_retry_waits_exactly_as_long_as_declared(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    @still.job(retry=Retry(max_attempts=5, first="2s", factor=3, cap="10s"))
    async def failing() -> None:
        raise ValueError("no")

    job = await failing.enqueue()
    for attempt, delay in enumerate([2, 6, 10, 10], start=1):
        assert await worker.run_pending() == 1
        row = await view(still, job)
        assert (row["state"], row["attempt"]) == ("queued", attempt)
        assert (row["run_at"] - clock.now()).total_seconds() == delay
        clock.advance(seconds=delay - 0.001)
        assert await worker.run_pending() == 0
        clock.advance(seconds=0.001)
    assert await worker.run_pending() == 1
    row = await view(still, job)
    assert (row["state"], row["attempt"], row["reason"]) == ("dead", 5, "out of attempts")
    assert [error["attempt"] for error in row["errors"]] == [1, 2, 3, 4, 5]


async def test_snooze_runs_again_later_and_spends_no_attempt(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    attempts: list[int] = []

    @still.job
    async def sleepy(ctx: Context = injected) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) < 3:
            raise Snooze("8s")
        return "awake"

    job = await sleepy.enqueue()
    for _ in range(3):
        assert await worker.run_pending() == 1
        clock.advance(seconds=8)
    assert attempts == [1, 1, 1]
    assert await job.result() == "awake"


async def test_discard_cancels_with_its_reason(still: App, worker: ManualWorker) -> None:
    @still.job
    async def unwanted() -> None:
        raise Discard("the customer has left")

    job = await unwanted.enqueue()
    await worker.run_pending()
    with pytest.raises(JobCancelled, match="the customer has left"):
        await job.result()


async def test_give_up_is_dead_at_once_with_its_reason(still: App, worker: ManualWorker) -> None:
    @still.job
    async def hopeless() -> None:
        raise GiveUp("the account is closed")

    job = await hopeless.enqueue()
    await worker.run_pending()
    with pytest.raises(JobFailed, match="the account is closed"):
        await job.result()
    assert (await view(still, job))["attempt"] == 1


@pytest.mark.parametrize("raised", [GiveUp, Discard])
@pytest.mark.parametrize("reason", ["\ud800", "a\0b", "\udcff\0" * 5_000_000, "postgresql://u:geheim@db/x"])
async def test_any_reason_of_a_handler_ends_the_job_at_once(
    still: App, worker: ManualWorker, raised: type[GiveUp | Discard], reason: str
) -> None:
    @still.job
    async def ending() -> None:
        raise raised(reason)

    job = await ending.enqueue()
    await worker.run_pending()
    with pytest.raises(JobFailed) as failed:
        await job.result()
    assert len(str(failed.value)) < 6000
    assert "geheim" not in str(failed.value)
    assert (await view(still, job))["attempt"] == 1


@pytest.mark.parametrize(
    ("error", "state"), [(KeyError("a"), "dead"), (LookupError("b"), "queued"), (OSError("c"), "dead")]
)
async def test_errors_are_retried_or_not_as_declared(
    still: App, worker: ManualWorker, error: Exception, state: str
) -> None:
    @still.job(retry=Retry(retry_on=(LookupError,), give_up_on=(KeyError,)))
    async def choosy() -> None:
        raise error

    job = await choosy.enqueue()
    await worker.run_pending()
    assert (await view(still, job))["state"] == state


@pytest.mark.parametrize("junk", [object(), {1: object()}, float("nan"), "\ud800", b"\xff\x00" * 300_000, ...])
async def test_a_result_that_cannot_be_stored_is_dropped_and_the_job_is_done(
    still: App, worker: ManualWorker, junk: object
) -> None:
    events = Watched(still)

    @still.job
    async def odd() -> object:
        return junk

    job = await odd.enqueue()
    await worker.run_pending()
    assert await job.result() is None
    assert [event.job_id for event in events.of(JobResultDropped)] == [job]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


BAD_ERRORS = {
    "system exit": SystemExit(3),
    "own cancellation": asyncio.CancelledError("by the handler"),
    "generator exit": GeneratorExit("odd"),
    "nul": ValueError("a\x00b"),
    "lone surrogate": ValueError("a\ud800b"),
    "50 MB": ValueError("x" * 50_000_000),
    "no text": Unprintable(),
    "stop iteration": StopIteration("end"),
    "keyboard interrupt in a thread": KeyboardInterrupt(),
    "bad bytes": ValueError(b"\xff\xfe"),
}


BY_COROUTINES = [(what, False) for what in BAD_ERRORS if what != "keyboard interrupt in a thread"]
BY_THREADS = [(what, True) for what in BAD_ERRORS if what != "own cancellation"]


@pytest.mark.parametrize(("what", "sync"), [*BY_COROUTINES, *BY_THREADS])
async def test_whatever_a_handler_raises_is_recorded_and_the_worker_lives_on(
    still: App, worker: ManualWorker, what: str, sync: bool
) -> None:
    async def bad() -> None:
        raise BAD_ERRORS[what]

    def bad_sync() -> None:
        raise BAD_ERRORS[what]

    job = await still.job(name="bad")(bad_sync if sync else bad).enqueue()
    assert await worker.run_pending() == 1
    (error,) = (await view(still, job))["errors"]
    assert error["attempt"] == 1
    assert error["type"]
    assert len(error["message"]) < 10_000

    @still.job
    async def good() -> str:
        return "fine"

    after = await good.enqueue()
    await worker.run_pending()
    assert await after.result() == "fine"


async def test_one_undecodable_payload_buries_that_job_and_the_rest_of_the_batch_goes_on(
    still: App, worker: ManualWorker, database_url: str
) -> None:
    @still.job
    async def double(n: int) -> int:
        return 2 * n

    jobs = [await double.enqueue(n) for n in range(5)]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(
            """update trueup.jobs set args = '{"n": ["not", "a", "number"]}' where id = %s""", [jobs[2]]
        )
    assert await worker.run_pending() == 5
    assert [await jobs[n].result() for n in (0, 1, 3, 4)] == [0, 2, 6, 8]
    with pytest.raises(JobFailed, match="arguments"):
        await jobs[2].result()
    assert (await view(still, jobs[2]))["args"] == {"n": ["not", "a", "number"]}


async def test_unknown_kinds_are_left_for_workers_that_know_them(
    still: App, worker: ManualWorker, database_url: str, clock: ManualClock
) -> None:
    @still.job
    async def known() -> str:
        return "here"

    newer = App(database_url, clock=clock)

    @newer.job
    async def unheard_of() -> str:
        return "there"

    stranger, friend = await unheard_of.enqueue(), await known.enqueue()
    assert await worker.run_pending() == 1
    assert await friend.result() == "here"
    row = await view(still, stranger)
    assert (row["state"], row["attempt"], row["term"]) == ("queued", 0, 0)

    other = ManualWorker(newer)
    await other.begin()
    assert await other.run_pending() == 1
    assert await stranger.result() == "there"
    await other.end()
    await newer.close()


async def test_higher_priority_goes_first_and_waiting_makes_up_for_it(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    order: list[str] = []

    @still.job
    async def note(name: str) -> None:
        order.append(name)

    await note.enqueue("old, low")
    clock.advance(minutes=3)
    await note.using(priority=2).enqueue("new, two points")
    await note.using(priority=5).enqueue("new, five points")
    await note.enqueue("new, low")
    await worker.worker.register()  # the lease of the first has passed meanwhile
    await worker.claim()
    while await worker.run_one() is not None:
        pass
    assert order == ["new, five points", "old, low", "new, two points", "new, low"]


async def test_waiting_for_a_result_ends_with_its_timeout(still: App, worker: ManualWorker) -> None:
    @still.job
    async def later() -> None: ...

    job = await later.using(delay="1h").enqueue()
    with pytest.raises(
        ResultTimeout, match=r"50ms: later is queued; `trueup status` shows whether a worker runs that knows"
    ):
        await job.result(timeout="50ms")
    with pytest.raises(ResultTimeout, match=r"; result_sync blocks this thread's event loop, .*: await result\(\)$"):
        job.result_sync("10ms")
    with pytest.raises(ResultTimeout, match=r"status` [^;]*$"):
        await asyncio.to_thread(job.result_sync, "10ms")


async def test_a_result_that_does_not_come_has_the_last_failure(still: App, worker: ManualWorker) -> None:
    @still.job(retry=Retry(max_attempts=3, first="1h"))
    async def fails() -> None:
        raise ValueError("bad address")

    job = await fails.enqueue()
    assert await worker.run_pending() == 1
    with pytest.raises(ResultTimeout, match=r"fails is queued, and its last attempt failed: ValueError: bad address$"):
        await job.result(timeout="10ms")


@pytest.mark.parametrize("gains", [True, False])
async def test_queued_jobs_of_a_kind_that_gains_or_loses_its_limit_are_all_run(
    database_url: str, clock: ManualClock, gains: bool
) -> None:
    async def send(n: int) -> int:
        return n

    old, new = App(database_url, clock=clock), App(database_url, clock=clock)
    before = old.job(name="send", limit=None if gains else 2)(send)
    new.job(name="send", limit=2 if gains else None)(send)
    jobs = [await before.enqueue(n) for n in range(7)]
    worker = ManualWorker(new)
    events = Watched(new)
    await worker.begin()
    await worker.run_pending()
    assert [await job.result(timeout="1s") for job in jobs] == list(range(7))
    assert len(events.of(JobReleased)) == (7 if gains else 0)
    rows = [await view(new, job) for job in jobs]
    assert {row["attempt"] for row in rows} == {1}
    await worker.end()
    await old.close()
    await new.close()


async def test_a_job_that_was_asked_to_stop_and_failed_first_is_not_run_again(still: App, worker: ManualWorker) -> None:
    runs: list[int] = []

    @still.job(retry=Retry(max_attempts=5, first="0s"))
    async def send(n: int) -> None:
        runs.append(n)
        raise RuntimeError("no")

    job = await send.enqueue(1)
    await worker.claim()
    assert (await still.jobs.cancel([job])).asked == {job}
    await worker.run_one()
    await worker.finish()
    await worker.run_pending()
    assert runs == [1]
    assert (await still.store.views.job(job) or {})["state"] == "cancelled"


class Peculiar(Exception):
    """One that can be referred to weakly."""


@pytest.mark.parametrize("cls", [Peculiar, GiveUp, Discard, Snooze])
async def test_a_job_that_failed_leaves_no_cycle_behind(
    still: App, worker: ManualWorker, caplog: pytest.LogCaptureFixture, cls: Callable[[str], Exception]
) -> None:
    caplog.set_level(logging.CRITICAL, "trueup")  # pytest keeps records, and those of failures have their exception
    kept: list[weakref.ref[Exception]] = []

    @still.job
    async def failing() -> None:
        error = cls("1h")
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    await failing.enqueue()
    gc.disable()
    try:
        assert await worker.run_pending() == 1
        assert kept[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("after", ["0s", timedelta()])
async def test_a_handler_that_always_snoozes_for_no_time_runs_once_per_moment(
    still: App, worker: ManualWorker, clock: ManualClock, after: Any
) -> None:
    @still.job
    async def impatient() -> None:
        raise Snooze(after)

    job = await impatient.enqueue()
    for _ in range(3):
        assert await worker.run_pending() == 1
        clock.advance(seconds=1)
    assert (await view(still, job))["attempt"] == 0
