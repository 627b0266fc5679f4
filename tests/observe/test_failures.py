"""A failure, from the handler to the log, to Sentry and to structlog: with its exception and the handler's traceback."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import os
import re
import subprocess
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tests.docs.pages import DOCS, blocks
from tests.support.proxy import Proxy
from trueup import App, Context, DatabaseUnavailable, Exhausted, GiveUp, Job, Retry, Row, To, injected
from trueup.config import load_settings
from trueup.events import Event, JobBuried, JobRetried, RowQuarantined, RowRetried, ScanItemFailed
from trueup.observe.lines import configure_logging
from trueup.testing.worker import ManualWorker

SECRET = "postgresql://shop:hunter2@db/shop"


def breaks(depth: int = 1) -> None:
    if depth:
        breaks(depth - 1)
    raise ValueError(f"cannot reach {SECRET}")


async def fail_a_job(app: App, attempts: int) -> None:
    @app.job(name=f"fails{attempts}", retry=Retry(max_attempts=attempts, first="1s"))
    async def fails() -> None:
        breaks()

    await run_a_job(app, fails)


async def fail_a_sync_job(app: App, attempts: int) -> None:
    @app.job(name=f"fails_sync{attempts}", retry=Retry(max_attempts=attempts, first="1s"))
    def fails() -> None:
        breaks()

    await run_a_job(app, fails)


async def fail_a_row(app: App, attempts: int) -> None:
    async with app.transaction() as tx:
        await tx.execute(
            "create table papers (id int primary key, state text, changed_at timestamptz default '2020-01-01')"
        )
        await tx.execute("insert into papers (id, state) values (1, 'new')")
    papers = app.table("papers", key="id", state="state", changed_at="changed_at")

    @papers.reconcile("new", every="1h", retry=Retry(max_attempts=attempts, first="1s"))
    async def fails(row: Row) -> To:
        breaks()
        return To("done")

    worker = ManualWorker(app)
    await worker.begin()
    await worker.sweep("fails")
    await worker.end()


async def fail_a_scan(app: App, attempts: int) -> None:
    @app.scan("numbers", every="1h")
    async def numbers(cursor: int | None) -> Any:
        yield 1, 1

    @numbers.each
    async def each(item: int) -> None:
        breaks()

    await app.reconcilers.run("numbers")


CASES: list[tuple[Any, int, type[Event]]] = [
    (fail_a_job, 1, JobBuried),
    (fail_a_job, 2, JobRetried),
    (fail_a_sync_job, 1, JobBuried),
    (fail_a_row, 1, RowQuarantined),
    (fail_a_row, 2, RowRetried),
    (fail_a_scan, 1, ScanItemFailed),
]


CASE_NAMES = [f"{fail.__name__}-{attempts}" for fail, attempts, _ in CASES]


@pytest.mark.asyncio
@pytest.mark.parametrize(("fail", "attempts", "event"), CASES, ids=CASE_NAMES)
async def test_events_and_records_of_failures_have_the_exception_and_the_handlers_frames(
    still: App, caplog: pytest.LogCaptureFixture, fail: Any, attempts: int, event: type[Event]
) -> None:
    frames: list[list[str]] = []
    seen: list[Event] = []

    def note(happened: Event) -> None:
        seen.append(happened)
        frames.append(
            [frame.name for frame in traceback.extract_tb(getattr(happened.exception, "__traceback__", None))]
        )

    still.events.subscribe(note, event)
    await fail(still, attempts)
    (happened,) = seen
    assert isinstance(happened.exception, ValueError)
    assert frames[0][-2:] == ["breaks", "breaks"]
    assert "exception" not in repr(happened)
    (record,) = [each for each in caplog.records if each.exc_info]
    assert record.exc_info is not None
    assert record.exc_info[1] is happened.exception
    shown = logging.Formatter("%(message)s").format(record)
    assert "error_type=ValueError" in shown
    assert "in breaks" in shown
    assert "trueup/work" not in shown, "the worker's own frames are the same for every failure"
    assert "hunter2" not in shown


class Uncommon(Exception):
    pass


async def fail_after_its_transaction(app: App, attempts: int) -> None:
    @app.job(retry=Retry(max_attempts=attempts))
    async def fails(ctx: Context = injected) -> None:
        async with ctx.transaction():
            pass
        breaks()

    await run_a_job(app, fails)


async def fail_with_exhausted(app: App, attempts: int) -> None:
    async def over(job: Exhausted, tx: psycopg.AsyncConnection[Any]) -> None:
        breaks()

    @app.job(retry=Retry(max_attempts=attempts), exhausted=over)
    async def fails() -> None:
        breaks()

    await run_a_job(app, fails)


async def run_a_job(app: App, job: Job[[], None]) -> None:
    await job.enqueue()
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    await worker.end()


CYCLES = [*(case[:2] for case in CASES), (fail_after_its_transaction, 1), (fail_with_exhausted, 1)]


@pytest.mark.asyncio
@pytest.mark.parametrize(("fail", "attempts"), CYCLES, ids=[f"{fail.__name__}-{n}" for fail, n in CYCLES])
async def test_a_failure_leaves_no_reference_cycle(
    still: App, monkeypatch: pytest.MonkeyPatch, fail: Any, attempts: int
) -> None:
    """The traceback has the handler's frame, and that one the exception. From Python 3.12 on it has its callers' frames, too."""
    trueup = logging.getLogger("trueup")
    monkeypatch.setattr(trueup, "propagate", False)  # pytest keeps the records, with their exceptions

    raised: list[weakref.ref[Uncommon]] = []

    def breaks() -> None:
        kept = Uncommon("boom")
        raised.append(weakref.ref(kept))
        raise kept

    monkeypatch.setitem(globals(), "breaks", breaks)
    gc.disable()
    try:
        await fail(still, attempts)
        assert raised
        assert [error for each in raised if (error := each()) is not None] == []
    finally:
        gc.enable()


# -- error trackers and other loggers ---------------------------------------------------------------------------------


class Kept(Transport):
    """What would be sent to Sentry."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)


@pytest.fixture
def sentry() -> Iterator[Kept]:
    kept = Kept()
    sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=kept, default_integrations=True)
    yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.init()


@pytest.mark.asyncio
async def test_sentry_gets_each_dead_job_once_with_its_exception(
    still: App, worker: ManualWorker, sentry: Kept
) -> None:
    @still.job(retry=Retry(max_attempts=2, first="1s"))
    async def send(to: str) -> None:
        if to == "ann":
            raise KeyError(to)
        raise ValueError(to)

    for to in ("ann", "bob", "cid"):
        await send.enqueue(to)
    await worker.run_pending()
    assert sentry.events == [], "a job that will be retried is no issue yet"
    still.clock.advance(seconds=5)  # type: ignore[attr-defined]
    await worker.run_pending()
    assert sorted(event["exception"]["values"][-1]["type"] for event in sentry.events) == [
        "KeyError",
        "ValueError",
        "ValueError",
    ]
    for event in sentry.events:
        assert event["exception"]["values"][-1]["stacktrace"]["frames"][-1]["function"] == "send"
        assert event["extra"]["kind"] == "send"
        assert event["logger"] == "trueup.job"


async def fail_before_its_handler(app: App, attempts: int) -> None:
    """An error that no middleware sees: the stored arguments are not those of the function any more."""

    @app.job(name="fails", retry=Retry(max_attempts=attempts))
    async def fails(order: int) -> None: ...

    async with app.transaction() as tx:
        job = await fails.using(tx=tx).enqueue(1)
        await tx.execute("""update trueup.jobs set args = '{"order": "first"}' where id = %s""", [job.id])
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    await worker.end()


async def give_up(app: App, attempts: int) -> None:
    @app.job(retry=Retry(max_attempts=attempts))
    async def fails() -> None:
        raise GiveUp("never")

    await run_a_job(app, fails)


ATTEMPTS = [*(case[:2] for case in CASES), (fail_before_its_handler, 1), (fail_with_exhausted, 1), (give_up, 2)]


@pytest.mark.asyncio
@pytest.mark.parametrize(("fail", "attempts"), ATTEMPTS, ids=[f"{fail.__name__}-{n}" for fail, n in ATTEMPTS])
async def test_the_recipe_with_a_scope_per_call_reports_each_error_once(
    still: App, sentry: Kept, monkeypatch: pytest.MonkeyPatch, fail: Any, attempts: int
) -> None:
    (recipe,) = (each.code for each in blocks(DOCS / "howto/observability.md") if "class SentryScope" in each.code)
    options: dict[str, Any] = {}
    monkeypatch.setattr(sentry_sdk, "init", lambda **given: options.update(given))
    names: dict[str, Any] = {"os": os, "sentry_sdk": sentry_sdk}
    exec(compile(recipe, "observability.md", "exec", dont_inherit=True), names)
    monkeypatch.setitem(sentry_sdk.get_client().options, "before_send", options["before_send"])
    still.middleware(names["SentryScope"]())
    await fail(still, attempts)
    errors = [event["exception"]["values"][-1]["value"] for event in sentry.events]
    assert errors
    assert len(errors) == (2 if fail is fail_with_exhausted else 1), errors


@pytest.mark.asyncio
async def test_structlog_renders_events_with_fields_and_traceback(still: App) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logger = logging.getLogger("trueup")
    logger.addHandler(handler)
    try:
        await fail_a_job(still, 1)
    finally:
        logger.removeHandler(handler)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines() if "job buried" in line]
    assert (line["kind"], line["error_type"], line["level"]) == ("fails1", "ValueError", "error")
    assert "in breaks" in line["exception"]


JSON_PROGRAM = """
import logging, sys, threading, warnings
from trueup.config import load_settings
from trueup.observe.lines import configure_logging
configure_logging(load_settings(overrides={"log_format": "json"}))
logging.getLogger("somebody.elses").warning("two\\nlines")
logging.getLogger("psycopg.pool").warning("error connecting in %r: %s", "mine", "no")
logging.getLogger("uvicorn.error").error("down", exc_info=ValueError("x"))
logging.getLogger("asyncio").error("Task exception was never retrieved")
warnings.warn("old", DeprecationWarning)
def fail():
    raise ValueError("geheim=1 in a thread")
class Broken:
    def __del__(self):
        raise OSError("in a destructor")
for target in (fail, sys.exit):
    thread = threading.Thread(target=target, name="feed")
    thread.start()
    thread.join()
del thread, target
Broken()
raise RuntimeError("a bug")
"""


def test_every_line_is_json_whoever_logs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", JSON_PROGRAM], capture_output=True, text=True, timeout=60
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == [
        "somebody.elses",
        "psycopg.pool",
        "uvicorn.error",
        "asyncio",
        "py.warnings",
        "py.uncaught",
        "py.uncaught",
        "py.uncaught",
    ]
    messages = [str(line["message"]) for line in lines[-3:]]
    assert messages[0] == "thread feed ended: ValueError"
    assert "Broken.__del__" in messages[1]
    assert messages[2] == "the program ended: RuntimeError"
    assert [str(line["traceback"]).strip().splitlines()[-1] for line in lines[-2:]] == [
        "OSError: in a destructor",
        "RuntimeError: a bug",
    ]


CONSOLE_PROGRAM = """
import logging
from trueup.config import load_settings
from trueup.observe.lines import configure_logging
configure_logging(load_settings(overrides={"log_format": "console"}))
logging.getLogger("shop").setLevel(logging.INFO)
logging.getLogger("shop.jobs").info("order %s is paid", 7)
logging.getLogger("httpx").info("not asked for")
"""


def test_lines_of_an_application_look_like_ours_on_a_terminal_too() -> None:
    done = subprocess.run([sys.executable, "-c", CONSOLE_PROGRAM], capture_output=True, text=True, timeout=60)
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(r"\S+ INFO +order 7 is paid *", line)


def test_an_application_that_has_configured_logging_keeps_its_root_handlers() -> None:
    root = logging.getLogger()
    before, logger = list(root.handlers), logging.getLogger("trueup")
    state = (list(logger.handlers), logger.level, logger.propagate)
    driver = logging.getLogger("psycopg")
    driver_state = (list(driver.handlers), driver.propagate)
    assert before, "pytest's own"
    try:
        configure_logging(load_settings(overrides={"log_format": "json"}), io.StringIO())
        assert root.handlers == before
    finally:
        logger.handlers, logger.propagate = state[0], state[2]
        logger.setLevel(state[1])
        driver.handlers, driver.propagate = driver_state
        warnings.resetwarnings()
        warnings.simplefilter("error")


FASTAPI_PROGRAM = """
import contextlib, sys
import fastapi, uvicorn
from trueup import App, Retry
shop = App(sys.argv[1])
@shop.job(retry=Retry(max_attempts=1))
async def send_mail(to: str) -> None:
    look_up(to)
def look_up(to: str) -> None:
    raise ValueError("bad address")
@contextlib.asynccontextmanager
async def lifespan(app):
    async with shop, shop.worker():
        job = await send_mail.enqueue("ada")
        with contextlib.suppress(Exception):
            await job.result(timeout="30s")
        server.should_exit = True
        yield
server = uvicorn.Server(uvicorn.Config(fastapi.FastAPI(lifespan=lifespan), port=0))
server.run()
"""


@pytest.mark.slow
def test_a_failing_job_under_uvicorn_is_on_the_terminal_with_its_traceback(database_url: str) -> None:
    """FastAPI with an embedded worker, and nothing configured."""
    done = subprocess.run(
        [sys.executable, "-c", FASTAPI_PROGRAM, database_url], capture_output=True, text=True, timeout=90
    )
    said = done.stderr
    assert "job buried: job_id=" in said, said
    assert "kind=send_mail" in said
    assert "error='bad address'" in said
    assert "in look_up" in said
    assert "ValueError: bad address" in said


# -- PostgreSQL is away -----------------------------------------------------------------------------------------------


async def succeeds(call: Callable[[], Any]) -> None:
    """Connecting may take longer than half a second: psycopg's pool pauses for a second after a try that failed."""
    deadline = asyncio.get_running_loop().time() + 15
    while True:
        try:
            await call()
        except DatabaseUnavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
        else:
            return


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["enqueue", "enqueue_many", "enqueue_sync", "enqueue_many_sync"])
@pytest.mark.parametrize("before", ["never connected", "connected"])
async def test_enqueueing_while_postgresql_is_away_raises_our_error_in_time(
    database_url: str, how: str, before: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url), pool_timeout="500ms", connect_timeout="1s")

        @app.job
        async def add(a: int) -> None: ...

        call: Callable[[], Any] = {
            "enqueue": lambda: add.enqueue(1),
            "enqueue_many": lambda: add.enqueue_many([(1,)]),
            "enqueue_sync": lambda: asyncio.to_thread(add.enqueue_sync, 1),
            "enqueue_many_sync": lambda: asyncio.to_thread(add.enqueue_many_sync, [(1,)]),
        }[how]
        if before == "connected":
            await succeeds(call)
        proxy.cut()
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable) as raised:
                await call()
        assert not isinstance(raised.value, psycopg.Error)
        assert asyncio.get_running_loop().time() - began < 15, "thirty seconds each without pool_timeout"
        proxy.heal()
        await succeeds(call)
        await app.close()
    said = [record.msg for record in caplog.records if record.name == "psycopg.pool"]
    assert len(said) == len(set(said)), "the pool repeats itself"
