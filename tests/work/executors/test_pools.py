"""Handlers on executors: their places, their processes that die, and what travels between the two sides."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from typing import Any

import pytest

from tests.support.watching import Watched, until
from trueup import App, Discard, GiveUp, JobFailed, Retry, Snooze
from trueup.errors import DuplicateJob, JobCancelled, LostLease, NotAcquired
from trueup.events import ExecutorBroken, JobSnoozed

pytestmark = pytest.mark.asyncio

ONCE = Retry(max_attempts=1)


def spawned() -> Executor:
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def threads() -> Executor:
    return ThreadPoolExecutor(2)


def forked() -> Executor:
    return ProcessPoolExecutor(2, mp_context=get_context("forkserver"))


class Odd(Exception):
    """Cannot be read back: its constructor wants more than its text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Unreadable:
    """A value that pickles and does not unpickle."""

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


class Panic(BaseException):
    """As foreign runtimes raise them."""


RAISES: dict[str, Callable[[], BaseException]] = {
    "snooze": lambda: Snooze("1h"),
    "discard": lambda: Discard("nothing to do"),
    "give up": lambda: GiveUp("no use"),
    "lost lease": lambda: LostLease("nightly", 7),
    "duplicate": lambda: DuplicateJob("send", "key", 3, "queued"),
    "not acquired": lambda: NotAcquired("nightly", "held", unreachable=True),
    "odd": lambda: Odd(1, 2),
    "unpicklable": lambda: ValueError(threading.Lock()),
    "base exception": lambda: Panic("a foreign runtime panicked"),
    "group": lambda: BaseExceptionGroup("several", [Panic("one"), ValueError("two")]),
    "exit": lambda: SystemExit(3),
    "ctrl-c": lambda: KeyboardInterrupt(),
    "cancelled": lambda: asyncio.CancelledError(),
    "stop": lambda: StopIteration(),
    "generator exit": lambda: GeneratorExit(),
}


def fail(how: str) -> None:
    raise RAISES[how]()


def unreadable() -> Unreadable:
    return Unreadable()


def unpicklable() -> Any:
    return threading.Lock()


def die(marker: str) -> None:
    with open(marker, "a") as runs:
        runs.write("x")
    os._exit(9)


def linger(seconds: float) -> str:
    time.sleep(seconds)
    return "ended"


def cube(n: int) -> int:
    return n**3


EXPECTED = {
    "snooze": "queued",
    "discard": "cancelled",
    "cancelled": "dead",
}


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["a process", "a thread"])
async def test_whatever_a_handler_raises_on_an_executor_ends_that_job_and_no_other(
    app: App, events: Watched, executor: str
) -> None:
    make = spawned if executor == "a process" else threads
    job, good = app.job(executor=make, retry=ONCE)(fail), app.job(executor=make)(cube)
    async with app.worker(concurrency=4):
        failing = {how: await job.enqueue(how) for how in RAISES}
        fine = [await good.enqueue(n) for n in range(5)]
        assert [await each.result("60s") for each in fine] == [n**3 for n in range(5)]
        states = {}
        for how, handle in failing.items():
            if how == "snooze":
                await events.seen(JobSnoozed, job_id=int(handle))
            else:
                with pytest.raises(JobFailed):
                    await handle.result("60s")
            states[how] = (await app.store.views.job(int(handle)) or {})["state"]
    assert states == {how: EXPECTED.get(how, "dead") for how in RAISES}
    assert events.of(ExecutorBroken) == []


def _raises() -> Executor:
    raise ConnectionError("no scheduler")


def _panics() -> Executor:
    raise Panic("no scheduler")


class Uncounted(Executor):
    """Of another library."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2)

    @property
    def _max_workers(self) -> int:
        raise RuntimeError("it does not say")

    def submit(self, function: Any, /, *args: Any, **options: Any) -> Any:
        return self._threads.submit(function, *args, **options)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        raise RuntimeError("it cannot be ended")


@pytest.mark.parametrize(
    ("factory", "state", "reason"),
    [
        (_raises, "dead", "no scheduler"),
        (_panics, "dead", "no scheduler"),
        (lambda: None, "dead", "Executor is needed"),
        (Uncounted, "done", ""),
    ],
    ids=["raises", "panics", "makes nothing", "does not count"],
)
async def test_an_executor_that_cannot_be_had_fails_its_own_jobs_and_no_other(
    app: App, factory: Callable[[], Any], state: str, reason: str
) -> None:
    job, good = app.job(executor=factory, retry=ONCE)(cube), app.job(name="good")(linger)
    async with app.worker(concurrency=2):
        failing = await job.enqueue(2)
        assert await (await good.enqueue(0.0)).result("15s") == "ended"
        if state == "dead":
            with pytest.raises(JobFailed, match=reason):
                await failing.result("15s")
        else:
            assert await failing.result("15s") == 8


@pytest.mark.slow
@pytest.mark.parametrize("function", [unreadable, unpicklable])
async def test_a_result_that_cannot_travel_fails_its_job_with_a_reason(
    app: App, events: Watched, function: Callable[[], Any]
) -> None:
    job = app.job(executor=spawned, retry=ONCE)(function)
    async with app.worker(concurrency=2):
        with pytest.raises(JobFailed, match=r"pickle|cannot be read back|invalid literal"):
            await (await job.enqueue()).result("60s")
    assert events.of(ExecutorBroken) == []


@pytest.mark.slow
async def test_a_child_that_dies_costs_only_its_own_job_attempts(app: App, events: Watched, tmp_path: Any) -> None:
    killer = app.job(executor=spawned, retry=Retry(max_attempts=2, first="10ms"))(die)
    slow, good = app.job(executor=spawned, retry=ONCE)(linger), app.job(executor=spawned, retry=ONCE)(cube)
    marker = tmp_path / "runs"
    async with app.worker(concurrency=4):
        beside = await slow.enqueue(0.3)
        deadly = await killer.enqueue(str(marker))
        others = [await good.enqueue(n) for n in range(6)]
        with pytest.raises(JobFailed, match="its process died"):
            await deadly.result("90s")
        assert await beside.result("90s") == "ended"
        assert [await each.result("90s") for each in others] == [n**3 for n in range(6)]
        assert [(await app.store.views.job(int(each)) or {})["attempt"] for each in (beside, *others)] == [1] * 7
        assert (await app.store.views.job(int(deadly)) or {})["attempt"] == 2
    assert all(event.replaced for event in events.of(ExecutorBroken))
    assert 2 <= len(marker.read_text()) <= 4, "each attempt runs at most twice: once in company, once alone"


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
async def test_a_pool_that_lost_a_process_while_idle_is_replaced_and_costs_no_attempt(app: App, late: bool) -> None:
    """`late`: its own thread notices only after the next call."""
    pools: list[ProcessPoolExecutor] = []
    noticed = threading.Event()

    def made() -> Executor:
        pools.append(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        return pools[-1]

    job = app.job(executor=made, retry=ONCE)(cube)
    async with app.worker(concurrency=2):
        assert await (await job.enqueue(2)).result("60s") == 8
        (process,) = pools[0]._processes.values()
        manager: Any = pools[0]._executor_manager_thread
        if late:
            terminate = manager.terminate_broken
            manager.terminate_broken = lambda cause: (noticed.wait(60), terminate(cause))
        process.kill()
        process.join(10)
        assert await (await job.enqueue(3)).result("60s") == 27
        noticed.set()
    assert len(pools) == 2


@pytest.mark.slow
async def test_jobs_of_a_broken_pool_that_cannot_be_replaced_are_postponed_not_buried(
    app: App, events: Watched
) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(os._exit, 3)
        await until(lambda: pool._broken)
        job = app.job(executor=pool, retry=ONCE)(cube)
        handle = await job.enqueue(3)
        async with app.worker(concurrency=2):
            (snoozed,) = await events.seen(JobSnoozed, job_id=int(handle))
        assert events.of(ExecutorBroken, replaced=False)
        assert (await app.store.views.job(int(handle)) or {})["attempt"] == 0
        assert snoozed.delay_ms == 30_000


@pytest.mark.slow
async def test_waiting_for_a_place_does_not_count_against_the_timeout(app: App) -> None:
    @app.job(executor=lambda: ThreadPoolExecutor(1), timeout="400ms", retry=ONCE)
    def work(n: int) -> int:
        time.sleep(0.1)
        return n

    handles = [await work.enqueue(n) for n in range(8)]
    async with app.worker(concurrency=8):
        assert [await handle.result("20s") for handle in handles] == list(range(8))


@pytest.mark.slow
async def test_calls_that_outlived_their_timeout_do_not_hold_every_place_for_ever(app: App) -> None:
    hang = app.job(executor=forked, timeout="300ms", retry=ONCE)(linger)
    good = app.job(executor=forked, retry=ONCE)(cube)
    async with app.worker(concurrency=6):
        stuck = [await hang.enqueue(600.0) for _ in range(2)]
        for handle in stuck:
            with pytest.raises(JobFailed, match="timeout"):
                await handle.result("60s")
        assert await (await good.enqueue(3)).result("60s") == 27


@pytest.mark.slow
@pytest.mark.parametrize("owned", [True, False], ids=["factory", "passed in"])
async def test_a_worker_that_stops_ends_the_processes_it_made_and_hands_their_jobs_back(app: App, owned: bool) -> None:
    made: list[ProcessPoolExecutor] = []

    def make() -> Executor:
        made.append(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        return made[-1]

    job = app.job(executor=make if owned else make(), retry=ONCE)(linger)
    worker = app.worker(concurrency=2)
    worker.process_ends = not owned
    async with worker:
        handle = await job.enqueue(120.0)
        await until(lambda: worker.hand.running and made and made[0]._processes, 60)
        (process,) = made[0]._processes.values()
        began = time.monotonic()
        stopped = await worker.stop(timedelta(milliseconds=100))
    assert time.monotonic() - began < 20
    await until(lambda: not process.is_alive())
    assert stopped.abandoned == 0
    row = await app.store.views.job(int(handle))
    assert row is not None
    assert (row["state"], row["attempt"]) == ("queued", 0)


@pytest.mark.slow
async def test_ctrl_c_reaches_the_worker_and_not_the_handlers_in_its_pool(app: App) -> None:
    made: list[ProcessPoolExecutor] = []

    def make() -> Executor:
        made.append(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        return made[-1]

    job = app.job(executor=make, retry=ONCE)(linger)
    async with app.worker(concurrency=1):
        await (await job.enqueue(0.0)).result("60s")  # the child runs, and has been inside a handler
        handle = await job.enqueue(0.5)
        await until(lambda: made[0]._pending_work_items or made[0]._queue_count)
        await asyncio.sleep(0.1)  # a signal that comes before the handler has begun proves nothing, and harms nothing
        for process in made[0]._processes.values():
            os.kill(process.pid, signal.SIGINT)
        assert await handle.result("60s") == "ended"


async def test_an_executor_that_is_none_is_refused_where_it_is_declared(app: App) -> None:
    from trueup.errors import ConfigError

    with pytest.raises(ConfigError, match="executor= takes an Executor or a function that makes one"):
        app.job(executor="a pool")(cube)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "error",
    [
        Snooze("90s"),
        Discard("why"),
        GiveUp("why"),
        DuplicateJob("send", "key", 3, "queued"),
        NotAcquired("nightly", "held", unreachable=True),
        LostLease("nightly", 7),
        JobFailed("dead", 7),
        JobCancelled("dropped", 7),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_our_own_errors_survive_pickling(error: Exception) -> None:
    import pickle

    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 100], ids=["queue", "lane"])
async def test_a_worker_claims_no_more_jobs_than_its_executor_has_places(database_url: str, limit: int | None) -> None:
    """Two workers with a pool of two each share six slow jobs: neither hoards what the other could run."""
    apps = [App(database_url, poll_every="200ms") for _ in range(2)]
    ran: list[int] = []
    peak: list[int] = [0, 0]
    go_on = threading.Event()
    workers = []
    for number, app in enumerate(apps):

        @app.job(executor=lambda: ThreadPoolExecutor(2), limit=limit)
        def slow(n: int, number: int = number) -> None:
            go_on.wait(20)
            ran.append(n)

        @app.job
        async def plain(n: int) -> int:
            return n

        workers.append(app.worker(concurrency=20))
    async with apps[0], apps[1]:
        await apps[0].registry["slow"].enqueue_many((n,) for n in range(6))
        async with workers[0], workers[1]:
            await until(lambda: all(len(worker.hand.running) >= 2 for worker in workers))
            plain = [await apps[0].registry["plain"].enqueue(n) for n in range(10)]
            assert [await each.result("15s") for each in plain] == list(range(10)), "others pass by a full pool"
            for number, worker in enumerate(workers):
                held = [*worker.hand.in_hand(), *(run.job for run in worker.hand.running.values())]
                peak[number] = sum(job.kind == "slow" for job in held)
            go_on.set()
            await until(lambda: len(ran) == 6)
    assert peak == [2, 2]
    assert sorted(ran) == list(range(6))
