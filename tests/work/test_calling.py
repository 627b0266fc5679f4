"""Whatever a handler does when it is called: it ends that job, with its reason, and holds up no other."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.support import warm
from tests.support.watching import Watched, until
from trueup import App, JobFailed, Retry
from trueup.events import Events, JobReleased, JobRetried, ScanCompleted, ScanItemFailed, ServiceFailed, TicksDecided
from trueup.jobs.middleware import Middlewares
from trueup.work.calling import Caller, is_own_ending

pytestmark = pytest.mark.asyncio

TWICE = Retry(max_attempts=2, first="10ms")


class Panic(BaseException):
    """As foreign runtimes raise them."""


class Wordless(BaseException):
    def __str__(self) -> str:
        raise Panic("not even its text can be had")


POISON: dict[str, Callable[[], BaseException]] = {
    "base exception": lambda: Panic("a foreign runtime panicked"),
    "group": lambda: BaseExceptionGroup("several", [Panic("one"), ValueError("two")]),
    "exit": lambda: SystemExit(3),
    "generator exit": lambda: GeneratorExit("odd"),
    "cancelled": lambda: asyncio.CancelledError("from somewhere else"),
    "stop iteration": lambda: StopIteration("over"),
    "wordless": Wordless,
    "surrogate": lambda: ValueError("lone \ud800 surrogate"),
    "nul": lambda: ValueError("a NUL \x00 inside"),
    "huge": lambda: ValueError("x" * 5_000_000),
}


@pytest.mark.matrix
@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_a_job_that_raises_anything_is_retried_buried_and_in_nobodys_way(
    app: App, events: Watched, where: str, poison: str
) -> None:
    ran: list[int] = []

    async def on_the_loop() -> None:
        ran.append(1)
        raise POISON[poison]()

    def in_a_thread() -> None:
        ran.append(1)
        raise POISON[poison]()

    job = app.job(retry=TWICE, name="poison")(on_the_loop if where == "loop" else in_a_thread)

    @app.job
    async def good(n: int) -> int:
        return n

    async with app.worker(concurrency=2):
        handle = await job.enqueue()
        others = [await good.enqueue(n) for n in range(5)]
        assert [await other.result("15s") for other in others] == list(range(5))
        with pytest.raises(JobFailed):
            await handle.result("15s")
    assert len(ran) == 2
    row = await app.store.views.job(int(handle))
    assert row is not None
    assert (row["state"], row["attempt"], len(row["errors"])) == ("dead", 2, 2)
    assert events.of(JobRetried, job_id=int(handle))


@pytest.mark.parametrize("whose", ["its own task", "every task of the loop it finds by name"])
async def test_a_job_that_cancels_tasks_is_retried_and_buried(app: App, whose: str) -> None:
    @app.job(retry=TWICE)
    async def cancels() -> None:
        own = asyncio.current_task()
        assert own is not None
        if whose == "its own task":
            own.cancel()
        else:
            for task in asyncio.all_tasks():
                if task.get_name() == own.get_name():
                    task.cancel()
        await asyncio.sleep(10)

    @app.job
    async def good(n: int) -> int:
        return n

    async with app.worker(concurrency=2):
        handle = await cancels.enqueue()
        with pytest.raises(JobFailed, match=r"out of attempts|cancelled from inside"):
            await handle.result("15s")
        assert await (await good.enqueue(7)).result("15s") == 7
    errors = (await app.store.views.job(int(handle)) or {})["errors"]
    assert [error["message"] for error in errors] == ["the handler's task was cancelled from inside the handler"] * 2


async def test_a_handler_that_cancels_every_task_it_finds_leaves_a_worker_that_goes_on(
    app: App, events: Watched
) -> None:
    @app.job(retry=TWICE)
    async def cancels() -> None:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("trueup"):
                task.cancel()
        await asyncio.sleep(10)

    @app.job
    async def good(n: int) -> int:
        return n

    @app.cron("* * * * * *")
    async def secondly() -> None: ...

    async with app.worker(concurrency=2):
        await app.store.pool.fetch(b"select 1")
        handle = await cancels.enqueue()
        with pytest.raises(JobFailed, match=r"out of attempts|cancelled from inside"):
            await handle.result("15s")
        assert [await (await good.enqueue(n)).result("15s") for n in range(3)] == [0, 1, 2]
        assert {each.service for each in events.of(ServiceFailed)} >= {"claimer", "ticker", "listener"}
        before = len(events.of(TicksDecided))
        await until(lambda: len(events.of(TicksDecided)) > before)
        async with AsyncExitStack() as stack:  # the pool's tasks have been cancelled, too
            for _ in range(app.settings.pool_size):
                await stack.enter_async_context(app.store.pool.use())


async def test_a_worker_whose_registration_is_cancelled_registers_again(app: App) -> None:
    @app.job
    async def good() -> int:
        return 7

    hangs = asyncio.Event()

    async def hang() -> None:
        hangs.set()
        await asyncio.sleep(60)

    async with app.worker() as worker:
        register, worker.register = worker.register, hang  # type: ignore[method-assign]
        assert worker.registrations.present is not None
        worker._lost(worker.registrations.present, "for this test")
        await hangs.wait()
        worker.register = register  # type: ignore[method-assign]
        assert worker._registering is not None
        worker._registering.cancel()
        assert await (await good.enqueue()).result("15s") == 7


async def _coroutine() -> str:
    return "done"


NOT_RUN: dict[str, Callable[[], Any]] = {
    "coroutine": _coroutine,
    "generator": lambda: (n for n in range(3)),
    "asynchronous generator": lambda: (n async for n in _numbers()),
}


async def _numbers() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("returned", NOT_RUN)
@pytest.mark.parametrize("where", ["loop", "thread", "executor"])
async def test_a_job_whose_body_has_not_run_is_not_done(app: App, returned: str, where: str) -> None:
    async def on_the_loop() -> Any:
        return NOT_RUN[returned]()

    def plain() -> Any:  # as a decorator leaves it that calls an async def without awaiting it
        return NOT_RUN[returned]()

    with ThreadPoolExecutor(1) as threads:
        executor = threads if where == "executor" else None
        job = app.job(retry=Retry(max_attempts=1), name="wrapped", executor=executor)(
            on_the_loop if where == "loop" else plain
        )
        async with app.worker():
            with pytest.raises(JobFailed, match="out of attempts"):
                await (await job.enqueue()).result("15s")
    (dead,) = await app.jobs.list(state="dead")
    assert dead.error is not None
    assert "which nothing runs: make it an async def" in dead.error.message


@pytest.mark.parametrize("how", ["returns", "exits", "raises"])
@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_a_child_that_a_handler_forks_does_not_become_a_second_worker(
    database_url: str, where: str, how: str
) -> None:
    arguments = ("tests.work.forking", database_url, where, how)
    # Its output ends with the last process that has it.
    ended = await asyncio.to_thread(partial(warm.run, *arguments, cwd=warm.ROOT, env=os.environ, timeout=30))
    assert ended.stdout.split() == ["forked", "good", "stopped"], ended.stderr


@pytest.mark.parametrize("poison", [name for name in POISON if name != "stop iteration"])
async def test_a_scan_item_that_raises_anything_fails_alone(app: App, events: Watched, poison: str) -> None:
    handled: list[int] = []

    @app.scan("numbers", every="1h", concurrency=2, run_at_start=True)
    async def numbers(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(5):
            yield n, n

    @numbers.each
    async def handle(n: int) -> None:
        if n == 2:
            raise POISON[poison]()
        handled.append(n)

    async with app.worker():
        (completed,) = await events.seen(ScanCompleted)
    assert sorted(handled) == [0, 1, 3, 4]
    assert (completed.items, completed.failed) == (5, 1)
    assert len(events.of(ScanItemFailed)) == 1


async def test_a_scan_item_that_cancels_its_task_fails_alone(app: App, events: Watched) -> None:
    @app.scan("numbers", every="1h", run_at_start=True)
    async def numbers(cursor: int | None) -> AsyncIterator[tuple[int, int]]:
        for n in range(3):
            yield n, n

    @numbers.each
    async def handle(n: int) -> None:
        if n == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(10)

    async with app.worker():
        (completed,) = await events.seen(ScanCompleted)
    assert (completed.items, completed.failed) == (3, 1)


@pytest.mark.slow
async def test_a_thread_that_ends_during_the_shutdown_is_waited_for_and_its_result_kept(app: App) -> None:
    entered = threading.Event()

    @app.job
    def slow() -> str:
        entered.set()
        time.sleep(0.8)
        return "done all the same"

    async with app.worker() as worker:
        handle = await slow.enqueue()
        await until(entered.is_set)
        await worker.stop(timedelta(milliseconds=50))
    assert await handle.result("1s") == "done all the same"


@pytest.mark.slow
async def test_a_job_whose_thread_still_runs_is_not_handed_on_by_an_embedded_worker(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.work.worker.LAST_WORD", 0.2)
    app, entered, let_go = App(database_url, lease_for="2s"), threading.Event(), threading.Event()
    inside: list[str] = []
    peak: list[int] = []

    @app.job(retry=TWICE)
    def stubborn() -> None:
        inside.append("in")
        peak.append(len(inside))
        entered.set()
        let_go.wait(15)
        inside.pop()

    watched = Watched(app)
    async with app:
        async with app.worker() as worker:
            handle = await stubborn.enqueue()
            await until(entered.is_set)
            stopped = await worker.stop(timedelta(milliseconds=50))
        assert stopped.abandoned == 1
        assert watched.of(JobReleased) == []
        assert (await app.store.views.job(int(handle)) or {})["state"] == "running"
        let_go.set()
        async with app.worker():
            assert await handle.result("15s") is None
    assert max(peak) == 1


@pytest.mark.parametrize(
    ("error", "ours", "expected"),
    [
        (ValueError(), False, True),
        (ValueError(), True, True),
        (Panic(), False, True),
        (SystemExit(), False, True),
        (asyncio.CancelledError(), False, True),
        (asyncio.CancelledError(), True, False),
        (KeyboardInterrupt(), False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
async def test_only_ctrl_c_and_our_own_cancellation_are_not_how_a_handler_ended(
    error: Any, ours: bool, expected: bool
) -> None:
    assert is_own_ending(error, cancelled_by_us=ours) is expected


async def test_a_thread_that_is_busy_when_its_worker_stops_ends_with_its_call() -> None:
    caller, let_go = Caller(Events(), Middlewares()), threading.Event()
    before = set(threading.enumerate())
    call = asyncio.ensure_future(caller.call(let_go.wait, is_async=False, timeout=None))
    await until(lambda: caller.threads_busy == 1)
    (thread,) = set(threading.enumerate()) - before
    caller.close()
    let_go.set()
    assert await call is True
    await until(lambda: not thread.is_alive())
