"""Traces go from the span that enqueues through the job to its children, and failures are on their spans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from trueup import App, Context, Discard, Retry, Snooze, To
from trueup.integrations.otel import OpenTelemetry
from trueup.schedules import Every
from trueup.store.inserting import ONE_STATEMENT
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


class Traced:
    """A tracer of its own, so that tests do not share the global one."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def only(self, name: str, kind: SpanKind) -> ReadableSpan:
        (span,) = [each for each in self.spans if each.name == name and each.kind == kind]
        return span


@pytest.fixture
def traced(app: App) -> Iterator[Traced]:
    traced = Traced()
    app.middleware(OpenTelemetry(traced.provider))
    yield traced
    traced.provider.shutdown()


def child_of(parent: ReadableSpan, span: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and span.parent.span_id == parent.context.span_id
        and span.context.trace_id == parent.context.trace_id
    )


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def run(app: App) -> int:
    worker = ManualWorker(app)
    await worker.begin()
    try:
        return await worker.run_pending()
    finally:
        await worker.end()


@pytest.mark.parametrize("how", ["async", "sync", "real worker", "in a transaction"])
async def test_a_trace_goes_from_the_request_through_the_job_to_its_child(app: App, traced: Traced, how: str) -> None:
    @app.job(queue="mail")
    async def child() -> None: ...

    if how == "sync":

        @app.job(name="parent")
        def parent() -> None:
            assert trace.get_current_span().get_span_context().is_valid
            child.enqueue_sync()

    else:

        @app.job(name="parent")
        async def parent() -> None:
            await child.enqueue()

    with traced.tracer.start_as_current_span("request"):
        if how == "in a transaction":
            await app.open()
            async with app.store.pool.transaction() as tx:
                handle = await parent.using(tx=tx).enqueue()
        elif how == "sync":
            handle = await asyncio.to_thread(parent.enqueue_sync)
        else:
            handle = await parent.enqueue()
    if how == "real worker":
        async with app.worker():
            await handle.result("15s")
            async with asyncio.timeout(15):
                while not any(each.kind == SpanKind.CONSUMER and each.name == "child" for each in traced.spans):
                    await asyncio.sleep(0.02)
    else:
        assert await run(app) == 2

    request = traced.only("request", SpanKind.INTERNAL)
    sent, ran = traced.only("parent", SpanKind.PRODUCER), traced.only("parent", SpanKind.CONSUMER)
    sent_child, ran_child = traced.only("child", SpanKind.PRODUCER), traced.only("child", SpanKind.CONSUMER)
    assert child_of(request, sent)
    assert child_of(sent, ran)
    assert child_of(ran, sent_child)
    assert child_of(sent_child, ran_child)
    assert attributes(sent) == {
        "messaging.system": "trueup",
        "messaging.destination.name": "default",
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.message.id": str(handle),
    }
    assert attributes(ran) == {
        "messaging.system": "trueup",
        "messaging.destination.name": "default",
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.message.id": str(handle),
        "trueup.attempt": 1,
    }
    assert attributes(ran_child)["messaging.destination.name"] == "mail"
    assert {each.status.status_code for each in traced.spans} == {StatusCode.UNSET}


@pytest.mark.parametrize("size", [3, ONE_STATEMENT + 1])
async def test_jobs_of_a_batch_belong_to_one_span(app: App, traced: Traced, size: int) -> None:
    @app.job
    async def note(n: int) -> None: ...

    await note.enqueue_many((n,) for n in range(size))
    sent = traced.only("note", SpanKind.PRODUCER)
    assert attributes(sent)["messaging.batch.message_count"] == size
    async with app.store.pool.use() as connection:
        rows = await (await connection.execute("select distinct meta from trueup.jobs")).fetchall()
    traceparent = f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-{sent.context.trace_flags:02x}"
    assert rows == [({"traceparent": traceparent},)]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_a_failure_is_on_the_span_of_its_attempt_with_secrets_masked(
    app: App, traced: Traced, sync: bool
) -> None:
    def fail() -> None:
        raise ValueError("no answer from https://me:s3cret-pass@example.org")

    async def fail_async() -> None:
        fail()

    job = app.job(name="fail", retry=Retry(max_attempts=1))(fail if sync else fail_async)
    await job.enqueue()
    await run(app)
    span = traced.only("fail", SpanKind.CONSUMER)
    (event,) = span.events
    told = dict(event.attributes or {})
    assert (span.status.status_code, event.name) == (StatusCode.ERROR, "exception")
    assert attributes(span)["error.type"] == told["exception.type"] == "ValueError"
    assert "no answer" in str(told["exception.message"])
    assert "in fail" in str(told["exception.stacktrace"])
    assert "trueup/work" not in str(told["exception.stacktrace"])
    assert "s3cret-pass" not in f"{span.status.description}{told}"


@pytest.mark.parametrize("ending", [Snooze("1h"), Discard("nothing to do")], ids=["snooze", "discard"])
async def test_what_a_handler_decides_is_no_error(app: App, traced: Traced, ending: Exception) -> None:
    @app.job
    async def decide() -> None:
        raise ending

    await decide.enqueue()
    await run(app)
    span = traced.only("decide", SpanKind.CONSUMER)
    assert (span.status.status_code, span.events) == (StatusCode.UNSET, ())
    assert attributes(span)["trueup.ended"] == type(ending).__name__


async def test_a_failed_enqueue_is_on_its_span(app: App, traced: Traced) -> None:
    @app.job
    async def note() -> None: ...

    await app.open()
    async with app.store.pool.use() as connection:
        await connection.execute("alter table trueup.jobs rename to gone")
    with pytest.raises(psycopg.errors.UndefinedTable):
        await note.enqueue()
    assert traced.only("note", SpanKind.PRODUCER).status.status_code == StatusCode.ERROR


async def test_meta_of_others_stays_and_nonsense_in_it_begins_a_new_trace(app: App, traced: Traced) -> None:
    seen: list[dict[str, Any]] = []

    @app.job
    async def note(ctx: Context) -> None:
        seen.append(dict(ctx.meta))

    await note.using(meta={"tenant": 7}).enqueue()
    await app.store.pool.open()
    async with app.store.pool.use() as connection:
        await connection.execute("""update trueup.jobs set meta = meta || '{"traceparent": 5, "tracestate": null}'""")
    await run(app)
    assert seen == [{"tenant": 7, "traceparent": 5, "tracestate": None}]
    assert traced.only("note", SpanKind.CONSUMER).parent is None


async def test_each_tick_is_a_trace_of_its_own_and_carries_the_meta_of_its_schedule(
    still: App, clock: ManualClock
) -> None:
    traced, seen = Traced(), list[tuple[str, dict[str, Any]]]()
    still.middleware(OpenTelemetry(traced.provider))

    @still.job
    async def made(ctx: Context) -> None:
        seen.append(("made", dict(ctx.meta)))

    @still.cron("0 * * * *", meta={"tenant": "declared"})
    async def declared(ctx: Context) -> None:
        seen.append(("declared", dict(ctx.meta)))

    worker = ManualWorker(still)
    with traced.tracer.start_as_current_span("request"):
        await worker.begin()
        await still.schedules.create("at-run-time", Every("1h"), made.call(), meta={"tenant": "made"})
    try:
        for _ in range(2):
            clock.advance(hours=1)
            await worker.plan()
            assert await worker.run_pending() == 2
    finally:
        await worker.end()
    assert sorted(seen) == [(name, {"tenant": name}) for name in ("declared", "declared", "made", "made")]
    ran = [span for span in traced.spans if span.kind == SpanKind.CONSUMER]
    assert [span.parent for span in ran] == [None] * 4
    request = traced.only("request", SpanKind.INTERNAL)
    assert len({span.context.trace_id for span in [request, *ran]}) == 5
    traced.provider.shutdown()


async def test_rows_and_scans_have_internal_spans_and_idle_workers_none(app: App, traced: Traced) -> None:
    async with app.store.pool.use() as connection:
        await connection.execute(
            "create table orders (id int primary key, state text); insert into orders values (1, 'new')"
        )

    @app.job
    async def ship() -> None: ...

    @app.table("orders", key="id", state="state").reconcile("new", name="orders")
    async def take(order: dict[str, Any]) -> To:
        return To("taken", then=[ship.call()])

    @app.scan("numbers", every="1h")
    async def numbers(cursor: Any) -> AsyncIterator[tuple[int, Any]]:
        yield 7, None

    @numbers.each
    async def number(n: int) -> None: ...

    with traced.tracer.start_as_current_span("startup"):  # as a worker that is embedded in a program may be
        worker = ManualWorker(app)
        await worker.begin()
        try:
            assert await worker.run_pending() == 0
            assert (await worker.sweep("orders")).changed == 1
            assert (await worker.worker.scanners["numbers"].scan_once(anyway=True)).items == 1
            assert await worker.run_pending() == 1
        finally:
            await worker.end()
    row, item = traced.only("orders", SpanKind.INTERNAL), traced.only("numbers", SpanKind.INTERNAL)
    made, ran = traced.only("ship", SpanKind.PRODUCER), traced.only("ship", SpanKind.CONSUMER)
    assert (row.parent, item.parent) == (None, None)
    assert child_of(row, made)
    assert child_of(made, ran)
    assert attributes(row) == {"trueup.row": "orders", "trueup.row.key": "1", "trueup.attempt": 1}
    assert attributes(made)["messaging.operation.type"] == "create"
    assert len(traced.spans) == 5


async def test_without_a_tracer_nothing_is_sent_along(app: App) -> None:
    app.middleware(OpenTelemetry(trace.NoOpTracerProvider()))

    @app.job
    async def note() -> None: ...

    handle = await note.enqueue()
    assert (await handle.status()).meta is None
    assert await run(app) == 1
