"""Middleware is around every enqueue and every call of a handler, sees how each ended, and cannot change it."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from trueup import App, ConfigError, EnqueueCall, Exhausted, GiveUp, HandlerCall, Retry, To
from trueup.events import Event, JobBuried, JobDeferred, JobFailedAfterDone
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

inside: ContextVar[str] = ContextVar("inside", default="outside")


class Noting:
    """Notes what it sees, and sets a context variable around handlers."""

    def __init__(self, name: str = "outer", notes: list[Any] | None = None) -> None:
        self.name = name
        self.notes: list[Any] = [] if notes is None else notes

    @contextmanager
    def around_enqueue(self, call: EnqueueCall) -> Iterator[None]:
        call.meta.setdefault("by", []).append(self.name)
        try:
            yield
        finally:
            self.notes.append((self.name, call.operation, call.kind, call.job_id is not None, call.created))

    @asynccontextmanager
    async def around_handler(self, call: HandlerCall) -> AsyncIterator[None]:
        before = inside.set(self.name)
        ended = "returned"
        try:
            yield
        except BaseException as error:
            ended = type(error).__name__
            raise
        finally:
            inside.reset(before)
            self.notes.append((self.name, call.what, call.name, call.attempt, dict(call.meta), ended))


async def run(app: App) -> int:
    worker = ManualWorker(app)
    await worker.begin()
    try:
        return await worker.run_pending()
    finally:
        await worker.end()


async def test_middleware_wraps_every_enqueue_and_handler_the_first_one_outermost(app: App) -> None:
    notes: list[Any] = []
    app.middleware(Noting("outer", notes))
    app.middleware(Noting("inner", notes))
    seen: list[str] = []

    @app.job
    def note() -> None:
        seen.append(inside.get())

    await note.enqueue()
    assert notes == [("inner", "enqueue", "note", True, 1), ("outer", "enqueue", "note", True, 1)]
    notes.clear()
    assert await run(app) == 1
    meta = {"by": ["outer", "inner"]}
    assert notes == [
        ("inner", "job", "note", 1, meta, "returned"),
        ("outer", "job", "note", 1, meta, "returned"),
    ]
    assert seen == ["inner"]  # in the thread, too


Declare = Callable[[App, list[str]], Any]


def declare_async(app: App, seen: list[str]) -> Any:
    @app.job(name="it")
    async def it() -> None:
        seen.append(inside.get())

    return it


def declare_sync(app: App, seen: list[str]) -> Any:
    @app.job(name="it", timeout="10s")
    def it() -> None:
        seen.append(inside.get())

    return it


def declare_elsewhere(app: App, seen: list[str]) -> Any:
    @app.job(name="it", executor=ThreadPoolExecutor(1))
    def it() -> None:
        seen.append("elsewhere")

    return it


@pytest.mark.matrix
@pytest.mark.parametrize("declare", [declare_async, declare_sync, declare_elsewhere])
@pytest.mark.parametrize("way", ["enqueue", "enqueue_sync", "enqueue_many", "enqueue_many_sync"])
async def test_every_way_to_enqueue_and_to_run_is_surrounded(database_url: str, declare: Declare, way: str) -> None:
    noting, seen = Noting(), list[str]()
    async with App(database_url, middleware=[noting]) as app:
        job = declare(app, seen)
        given = ([()] * 3,) if "many" in way else ()
        if way.endswith("sync"):
            await asyncio.to_thread(getattr(job, way), *given)
        else:
            await getattr(job, way)(*given)
        count = await run(app)
    assert count == (3 if "many" in way else 1)
    assert noting.notes[0] == ("outer", way.removesuffix("_sync"), "it", "many" not in way, count)
    assert noting.notes[1:] == [("outer", "job", "it", 1, {"by": ["outer"]}, "returned")] * count
    assert seen in (["outer"] * count, ["elsewhere"] * count)


async def hangs() -> None:
    await asyncio.Event().wait()


async def raises() -> None:
    raise ValueError("boom")


async def gives_up() -> None:
    raise GiveUp("no use")


@pytest.mark.parametrize(
    ("function", "ended"),
    [(raises, "ValueError"), (gives_up, "GiveUp"), (hangs, "JobTimeout")],
    ids=["raises", "gives up", "hangs"],
)
async def test_it_sees_how_a_handler_ended_and_swallowing_that_changes_nothing(
    app: App, function: Any, ended: str
) -> None:
    noting = Noting()

    class Swallowing:
        @asynccontextmanager
        async def around_handler(self, call: HandlerCall) -> AsyncIterator[None]:
            with suppress(BaseException):
                yield

    app.middleware(noting)
    app.middleware(Swallowing())
    job = app.job(retry=Retry(max_attempts=1), timeout="100ms")(function)
    handle = await job.enqueue()
    await run(app)
    assert noting.notes[-1][-1] == ended
    status = await handle.status()
    assert status.state == "dead"
    assert status.error is not None
    assert status.error.type.endswith(ended)


class Peculiar(Exception):
    """One that can be referred to weakly."""


async def test_a_failure_inside_of_it_leaves_no_cycle_behind(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "trueup")  # pytest keeps records, and those of failures have their exception
    kept: list[weakref.ref[Exception]] = []
    app.middleware(Noting())

    @app.job(retry=Retry(max_attempts=1))
    async def failing() -> None:
        error = Peculiar()
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    await failing.enqueue()
    gc.disable()
    try:
        assert await run(app) == 1
        assert kept[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_error_of_its_own_is_the_handlers_failure(app: App, when: str) -> None:
    class Broken:
        @asynccontextmanager
        async def around_handler(self, call: HandlerCall) -> AsyncIterator[None]:
            if when == "before":
                raise RuntimeError("middleware")
            yield
            raise RuntimeError("middleware")

    ran: list[int] = []
    app.middleware(Broken())

    @app.job(retry=Retry(max_attempts=1))
    async def work() -> None:
        ran.append(1)

    handle = await work.enqueue()
    await run(app)
    status = await handle.status()
    assert (status.state, str(status.error), ran) == ("dead", "RuntimeError: middleware", [1] * (when == "after"))


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("when", ["never", "before", "after"])
async def test_exhausted_is_surrounded_like_a_handler(app: App, is_async: bool, when: str) -> None:
    noting, seen, told = Noting(), list[str](), list[Event]()

    class Breaking:
        @asynccontextmanager
        async def around_handler(self, call: HandlerCall) -> AsyncIterator[None]:
            if call.what == "exhausted" and when == "before":
                raise RuntimeError("of the hook")
            yield
            if call.what == "exhausted" and when == "after":
                raise RuntimeError("of the hook")

    async def in_loop(dead: Exhausted) -> None:
        seen.append(inside.get())

    def in_thread(dead: Exhausted) -> None:
        seen.append(inside.get())

    @app.job(retry=Retry(max_attempts=1), exhausted=in_loop if is_async else in_thread)
    async def fails() -> None:
        raise ValueError("no")

    app.middleware(noting)
    app.middleware(Breaking())
    app.events.subscribe(told.append, JobBuried, JobDeferred, JobFailedAfterDone)
    handle = await fails.using(meta={"tenant": "north"}).enqueue()
    noting.notes.clear()
    await run(app)
    ended = {"never": "returned"}.get(when, "RuntimeError")
    meta = {"tenant": "north", "by": ["outer"]}
    assert noting.notes == [
        ("outer", "job", "fails", 1, meta, "ValueError"),
        ("outer", "exhausted", "fails", 1, meta, ended),
    ]
    assert seen == ([] if when == "before" else ["outer"])
    state = (await handle.status()).state
    expected: dict[str, tuple[str, list[type[Event]]]] = {
        "never": ("dead", [JobBuried]),
        "before": ("queued", [JobDeferred]),  # nothing was committed: it is called again
        "after": ("dead", [JobFailedAfterDone, JobBuried]),  # the burial is committed, and stays
    }
    assert (state, [type(event) for event in told]) == expected[when]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_error_around_enqueue_is_raised_to_the_caller(app: App, when: str) -> None:
    class Broken:
        @contextmanager
        def around_enqueue(self, call: EnqueueCall) -> Iterator[None]:
            if when == "before":
                raise RuntimeError("middleware")
            yield
            raise RuntimeError("middleware")

    app.middleware(Broken())

    @app.job
    async def work() -> None: ...

    for ask in (work.enqueue, lambda: work.enqueue_many([()])):
        with pytest.raises(RuntimeError, match="middleware"):
            await ask()
    with pytest.raises(RuntimeError, match="middleware"):
        work.call()
    counted = await app.jobs.count(state="queued")
    assert int(counted) == (0 if when == "before" else 2)


async def test_a_failed_enqueue_is_raised_though_a_hook_swallows_it(app: App) -> None:
    class Swallowing:
        @contextmanager
        def around_enqueue(self, call: EnqueueCall) -> Iterator[None]:
            with suppress(Exception):
                yield

    app.middleware(Swallowing())

    @app.job
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="tx= takes"):
        await work.using(tx=object()).enqueue()


async def test_rows_scans_and_the_jobs_that_rows_ask_for_are_surrounded(app: App) -> None:
    noting = Noting()
    app.middleware(noting)
    async with app.store.pool.use() as connection:
        await connection.execute(
            "create table orders (id int primary key, state text); insert into orders values (1, 'new')"
        )

    @app.job
    async def ship(order: int) -> None: ...

    orders = app.table("orders", key="id", state="state")

    @orders.reconcile("new", name="orders")
    async def take(order: dict[str, Any]) -> To:
        assert inside.get() == "outer"
        return To("taken", then=[ship.call(1)])

    @app.scan("numbers", every="1h")
    async def numbers(cursor: Any) -> AsyncIterator[tuple[int, Any]]:
        yield 7, None

    @numbers.each
    def number(n: int) -> None:
        assert inside.get() == "outer"

    worker = ManualWorker(app)
    await worker.begin()
    try:
        assert (await worker.sweep("orders")).changed == 1
        assert (await worker.worker.scanners["numbers"].scan_once(anyway=True)).items == 1
        assert await worker.run_pending() == 1
    finally:
        await worker.end()
    assert sorted(noting.notes) == [
        ("outer", "call", "ship", False, None),
        ("outer", "job", "ship", 1, {"by": ["outer"]}, "returned"),
        ("outer", "row", "orders", 1, {}, "returned"),
        ("outer", "scan", "numbers", 1, {}, "returned"),
    ]


@pytest.mark.parametrize("given", [object(), Noting, None])
async def test_what_has_neither_hook_is_refused(app: App, given: Any) -> None:
    with pytest.raises(ConfigError, match="around_enqueue or around_handler"):
        app.middleware(given)
    with pytest.raises(ConfigError, match="around_enqueue or around_handler"):
        App(middleware=given)
