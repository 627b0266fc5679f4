"""Who blocks the event loop: the application's code is named, never that of a package it called."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from tests.support.waiting import wait_until
from trueup import App, Row, To
from trueup.events import LoopBlocked
from trueup.work.renewer import _application_code, _stack
from trueup.work.renewing import RETRY_AFTER


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def named(target: Callable[[], object], release: threading.Event) -> tuple[str, str]:
    """What is said to block, and the stack that is shown."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    waiting: list[tuple[str, str]] = []

    def is_waiting() -> bool:
        frame = sys._current_frames()[thread.ident or 0]
        name, application = _application_code(frame)
        waiting[:] = [(name, _stack(frame, application))]
        return frame.f_code.co_name == "wait"

    wait_until(is_waiting, "the thread waits")
    release.set()
    thread.join()
    return waiting[0]


def test_a_stack_without_code_of_the_application_names_nobody(release: threading.Event) -> None:
    assert named(release.wait, release)[0] == ""


def test_the_innermost_function_of_the_application_is_named(release: threading.Event) -> None:
    def query() -> None:
        release.wait()

    def outer() -> None:
        query()

    assert named(outer, release)[0].endswith("query")


@pytest.mark.parametrize(("module", "blamed"), [("shop.mail", "shop.mail"), ("__main__", "")])
def test_a_module_that_is_imported_is_named_and_the_program_itself_never(
    release: threading.Event, module: str, blamed: str
) -> None:
    """The first lines of a program are on every stack."""
    code = compile("release.wait()", "/srv/shop/mail.py", "exec")
    assert named(lambda: eval(code, {"release": release, "__name__": module}), release)[0] == blamed


def test_the_line_of_the_application_is_shown_however_deep_its_library_is(release: threading.Event) -> None:
    namespace: dict[str, Any] = {}
    deep = "def call(depth, then): return call(depth - 1, then) if depth else then()"
    exec(compile(deep, "/srv/site-packages/deep.py", "exec"), namespace)

    def render() -> None:
        namespace["call"](50, release.wait)

    name, stack = named(render, release)
    assert name.endswith("render")
    assert stack.splitlines()[0].endswith("in render")
    assert "in wait\n" in stack


@pytest.mark.asyncio
async def test_a_renewal_that_fails_is_repeated_soon(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There must be time for several before the lease is over."""
    async with App(database_url, lease_for="60s", renew_every="20s") as app:
        renewer = app.worker().renewer
        for works in (True, False):
            monkeypatch.setattr(renewer, "renew_once", lambda works=works: works)
            renewer._due = 0.0
            assert (renewer.run_once() > RETRY_AFTER) is works


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["job", "row"])
async def test_a_handler_that_blocks_an_idle_workers_loop_at_once_is_named(database_url: str, what: str) -> None:
    app = App(database_url, blocked_after="200ms")
    blocked: list[str] = []  # a busy machine may stop the loop at other places, too
    app.events.subscribe(lambda event: blocked.append(event.handler.rpartition(".")[2]), LoopBlocked)

    async def blocks() -> None:
        wait_until(lambda: "blocks" in blocked, "the block is reported while it lasts", timeout=5)

    async def handles(row: Row) -> To:
        await blocks()
        return To("done")

    job = app.job(blocks)
    async with app.transaction() as tx:
        await tx.execute("create table orders (id int primary key, state text)")
        await tx.execute("insert into orders values (1, 'new')")
    app.table("orders", key="id", state="state").reconcile("new", every="1h" if what == "job" else "1s")(handles)
    async with app.worker():
        if what == "job":
            await (await job.enqueue()).result(timeout="10s")
        while "blocks" not in blocked:
            await asyncio.sleep(0.01)
    await app.close()


@pytest.mark.asyncio
async def test_what_blocked_the_loop_is_stored_with_the_worker_while_it_still_blocks(database_url: str) -> None:
    app = App(database_url, renew_every="500ms", blocked_after="200ms")
    stored: list[dict[str, object]] = []

    @app.job
    async def blocks() -> None:
        with psycopg.connect(app.store.url, autocommit=True) as connection:

            def is_stored() -> bool:
                ((found,),) = connection.execute("select blocked from trueup.workers").fetchall()
                # A busy machine may have stopped the loop before, somewhere else.
                stored.extend([found] if found and found["handler"] == "blocks" else [])
                return bool(stored)

            wait_until(is_stored, "the heartbeat says what blocks", timeout=30)

    async with app.worker():
        handle = await blocks.enqueue()
        await handle.result(timeout="40s")
    await app.close()
    assert stored[0]["times"] >= 1
    assert datetime.fromisoformat(str(stored[0]["at"])).tzinfo is not None
