"""What users write, type-checked and never run.

A line with `type: ignore[…]` is a mistake that the types must catch: if it type-checks one day, the unused ignore fails the
build.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from psycopg import AsyncConnection, Connection

from trueup import (
    Again,
    App,
    Context,
    Delete,
    Discard,
    Enqueued,
    Failed,
    GiveUp,
    Handle,
    Job,
    JobCount,
    JobDetails,
    JobPage,
    JobSummary,
    Lease,
    Limit,
    Rate,
    Retry,
    Row,
    Snooze,
    Stay,
    Table,
    Tick,
    To,
    Unchanged,
    Worker,
    WorkerInfo,
    injected,
)
from trueup.schedules import Cron, Every, Once, yearly

app = App()
explicit = App("postgresql://localhost/shop", schema="jobs", lease_for="30s")


@app.job
async def add(a: int, b: int = 2) -> int:
    return a + b


@app.job(queue="mail", retry=Retry(max_attempts=3, first="1s"), timeout=timedelta(minutes=5), priority=5)
async def send(to: str, *, subject: str = "") -> None: ...


@app.job
def resize(path: str, width: int) -> tuple[int, int]:
    return width, width


@app.job(limit=Limit(total=10, per_key=1), rate=Rate.parse("50/s"), fair_by="tenant", unique=lambda tenant: tenant)
def report(tenant: str) -> dict[str, int]:
    return {}


@app.job
async def leading(ctx: Context, address_id: int, mode: str = "partial") -> bool:
    assert_type(ctx.term, int)
    assert_type(ctx.attempt, int)
    assert_type(ctx.now, datetime)
    assert_type(ctx.idempotency_key, str)
    await ctx.progress(40, "page 4 of 10")
    await ctx.lost.wait()
    async with ctx.transaction() as tx:
        assert_type(tx, AsyncConnection[Any])
    return True


@app.job(rate="10/s")
async def leading_with_options(ctx: Context, address_id: int) -> bool:
    return ctx.lost.is_set()


@app.job
def leading_in_a_thread(ctx: Context, address_id: int) -> str:
    ctx.progress_sync(50)
    with ctx.transaction() as tx:
        assert_type(tx, Connection[Any])
    return ctx.idempotency_key


@app.job(queue="cpu")
def leading_in_a_thread_with_options(ctx: Context, address_id: int) -> str:
    return ctx.idempotency_key


@app.job
async def trailing(address_id: int, *, ctx: Context = injected) -> bool:
    return not ctx.lost.is_set()


@app.job(timeout="5m")
async def only_context(ctx: Context) -> float:
    raise Snooze("5m")


@app.job
async def gives_up() -> None:
    if datetime.now(UTC).year > 2000:
        raise Discard("too old")
    raise GiveUp("no use")


@app.cron("0 2 * * *", tz="UTC", missed="latest", overlap="skip", jitter="0s", catch_up="1d")
async def partial_reconciliation(tick: Tick) -> None:
    assert_type(tick.due_at, datetime)
    assert_type(tick.lateness, timedelta)
    assert_type(tick.schedule, str)
    assert_type(tick.attempt, int)


@app.every("5m", anchor=datetime(2026, 1, 1, tzinfo=UTC), pause_after=3, meta={"tenant": "north"})
def heartbeat(tick: Tick, ctx: Context) -> None: ...


@app.every("1h")
async def refresh() -> int:
    return 1


async def scheduling(when: datetime, tick: Tick) -> None:
    assert_type(await refresh(), int)
    await partial_reconciliation(when)  # type: ignore[arg-type]
    assert_type(Cron("30 2 * * *", tz="Europe/Berlin", dst="debian").next_after(when), datetime | None)
    assert_type(yearly(2, 29, "09:00", "Europe/Berlin", leap_day="mar1").occurrence(2027), datetime | None)
    await app.schedules.create("reports", Cron("@daily"), send.call("a"), missed="all", catch_up="2d", overlap="allow")
    await app.schedules.create("once", Once(when), add.call(1))
    assert_type(await app.schedules.edit("reports", spec=Every("1h"), jitter=timedelta(seconds=5)), bool)
    assert_type(await app.schedules.pause("reports", "not now"), bool)
    assert_type(await app.schedules.resume("reports"), bool)
    assert_type(await app.schedules.trigger("reports"), int)
    assert_type(await app.schedules.backfill("reports", when, when, rate="10/s", progress=print), int)
    assert_type((await app.schedules.audit("7d")).clean, bool)
    await app.schedules.delete("reports")


async def leasing() -> None:
    async with app.lease("nightly", ttl="60s", wait=timedelta(seconds=5)) as lease:
        assert_type(lease, Lease)
        assert_type(lease.term, int)
    with app.lease_sync("nightly", backend="advisory", key=738523901) as held:
        assert_type(held, Lease)


async def enqueueing(tx: AsyncConnection[Any], when: datetime) -> None:
    assert_type(await add.enqueue(1), Handle[int])
    assert_type(await add.enqueue(1, b=3), Handle[int])
    assert_type(await (await add.enqueue(1)).result(timeout="10s"), int)
    assert_type(await send.enqueue("a", subject="hello"), Handle[None])
    assert_type(await resize.enqueue("a.png", 100), Handle[tuple[int, int]])
    assert_type(await leading.enqueue(42, mode="full"), Handle[bool])
    assert_type(await leading_with_options.enqueue(42), Handle[bool])
    assert_type(await leading_in_a_thread.enqueue(42), Handle[str])
    assert_type(await leading_in_a_thread_with_options.enqueue(address_id=42), Handle[str])
    assert_type(await trailing.enqueue(42), Handle[bool])
    assert_type(await only_context.enqueue(), Handle[float])
    assert_type(await add.using(delay="5m", priority=5, unique="add", tx=tx).enqueue(1), Handle[int])
    assert_type(await add.using(run_at=when, on_conflict="replace", unique=lambda a: str(a)).enqueue(1), Handle[int])
    assert_type(await leading.using(queue="slow", max_attempts=1).enqueue(42), Handle[bool])
    assert_type(await add.enqueue_many([(1,), (2, 3), {"a": 4}]), Enqueued)
    assert_type(await add.enqueue_many(add.args(number, b=2) for number in range(3)), Enqueued)
    assert_type(await leading.using(tx=tx).enqueue_many([leading.args(42, mode="full")]), Enqueued)
    number: int = await add.enqueue(1)
    assert_type(number + 1, int)
    jobs: list[Job[..., Any]] = [add, send, leading]
    jobs.append(resize)


async def calling_the_function_itself(ctx: Context) -> None:
    assert_type(await add(1), int)
    assert_type(await add(1, b=3), int)
    assert_type(resize("a.png", 100), tuple[int, int])
    assert_type(report("a"), dict[str, int])
    assert_type(await leading(ctx, 42, mode="full"), bool)
    assert_type(leading_in_a_thread(ctx, 42), str)
    assert_type(await trailing(42, ctx=ctx), bool)
    assert_type(await only_context(ctx), float)
    await send("a", subject="hello")
    text: str = await add(1)  # type: ignore[assignment]
    await add(text)  # type: ignore[arg-type]
    await leading(42)  # type: ignore[arg-type, call-arg]


def settings(given: dict[str, Any]) -> None:
    App("postgresql://localhost/shop", concurrency=5, log_level="debug", queues={"mail": 5}, payload_limit="2MiB")
    App(drain_for=timedelta(seconds=5), include=["shop.*"], health_port=9101, listen=False, prepare="auto")
    App(**given)
    App(lease="30s")  # type: ignore[call-arg]
    App(lease_for=30)  # type: ignore[arg-type]
    App(concurrency="many")  # type: ignore[arg-type]
    App(log_level="loud")  # type: ignore[arg-type]


def enqueueing_without_a_loop(tx: Connection[Any]) -> None:
    assert_type(add.enqueue_sync(1), Handle[int])
    assert_type(leading.enqueue_sync(42), Handle[bool])
    assert_type(add.using(tx=tx).enqueue_sync(1), Handle[int])
    assert_type(add.enqueue_many_sync([(1,)]), Enqueued)
    add.call(1)
    leading.call(42, mode="full")


async def running() -> None:
    async with app, app.worker(concurrency=50, queues=["mail"]) as worker:
        assert_type(worker, Worker)
    await app.worker(queues={"mail": 5, "default": None}).run()


async def mistakes() -> None:
    await add.enqueue()  # type: ignore[call-arg]
    await add.enqueue("1")  # type: ignore[arg-type]
    await add.enqueue(1, c=3)  # type: ignore[call-arg]
    await add.enqueue(1, 2, 3)  # type: ignore[call-arg]
    await send.enqueue("a", "subject")  # type: ignore[call-arg]
    await add.using(delay="5m").enqueue("1")  # type: ignore[arg-type]
    await add.using(delay=5)  # type: ignore[arg-type, misc]
    await add.using(on_conflict="ignore").enqueue(1)  # type: ignore[arg-type]
    await add.using(soon=True).enqueue(1)  # type: ignore[call-arg]
    await leading.enqueue("42")  # type: ignore[arg-type]
    await leading.enqueue()  # type: ignore[call-arg]
    await leading_with_options.enqueue(42, 43)  # type: ignore[call-arg]
    await only_context.enqueue(42)  # type: ignore[call-arg]
    await trailing.enqueue("42")  # type: ignore[arg-type]
    text: str = await (await add.enqueue(1)).result()  # type: ignore[assignment]
    add.enqueue_sync(text)  # type: ignore[arg-type]
    add.call("1")  # type: ignore[arg-type]
    await add.enqueue_many([add.args("1")])  # type: ignore[arg-type]
    await add.enqueue_many([leading.args(42)])  # type: ignore[list-item]
    await send.enqueue_many([send.args("a", "subject")])  # type: ignore[call-arg]
    leading_in_a_thread.call()  # type: ignore[call-arg]
    app.cron("* * * * *", missed="some")  # type: ignore[arg-type]
    app.every(5)  # type: ignore[arg-type]
    app.every("5m", meta="tenant")  # type: ignore[arg-type]
    await app.schedules.create("x", "0 0 * * *", add.call(1))  # type: ignore[arg-type]
    await app.schedules.create("x", Once(datetime.now(UTC)), add.call(1), retries=3)  # type: ignore[call-arg]
    await app.schedules.create("x", yearly(1, 1, "09:00", "UTC"), add.call(1))  # type: ignore[arg-type]
    app.job(queue=3)  # type: ignore[call-overload]
    app.job(timeouts="5m")  # type: ignore[call-overload]


# -- which rows ----------------------------------------------------------------------------------------------------------

wallpapers = app.table("wallpapers", key="id", state="upload_state", changed_at="state_changed_at")
assert_type(wallpapers, Table)
app.table(("odd.schema", "odd.table"), key=("tenant", "id"), version="version", lease_columns=("owner", "until"))


@dataclass
class Upload:
    id: str
    upload_attempts: int


@wallpapers.reconcile(
    "uploading",
    stale_for="10m",
    every=timedelta(minutes=5),
    batch=100,
    concurrency=10,
    retry=Retry(max_attempts=3),
    failed=lambda row, failed: Stay(note=failed.message),
    exhausted=To("failed"),
    rate="50/s",
    pause_after=5,
)
async def recover_stuck_upload(upload: Upload, *, ctx: Context) -> To | Stay | Again | None:
    if upload.upload_attempts > 3:
        return To("failed", processing_error="Max retries exceeded")
    if ctx.attempt > 1:
        return Again("1h")
    assert_type(ctx.key, str)
    async with ctx.transaction(To("stored", then=[add.call(1, b=2)])) as tx:
        assert_type(tx, AsyncConnection[Any])
    return None


@wallpapers.reconcile("stored", due_at="publish_at", claim="row_lock")
async def publish(row: Row, *, tx: AsyncConnection[Any]) -> Delete | Unchanged:
    return Delete() if row["id"] else Unchanged()


@wallpapers.reconcile("gone", stale_for="1h")
def in_a_thread(row: Row) -> To | None:
    return None


@wallpapers.reconcile("gone", stale_for="1h")  # type: ignore[type-var]
async def says_a_word(row: Row) -> str:
    return "deleted"


@wallpapers.reconcile("gone", stale_for="1h")  # type: ignore[type-var]
def counts(row: Row) -> int:
    return 1


def written_off(row: Row, failed: Failed) -> To:
    assert_type(failed.again_at, datetime | None)
    return To("dead", last_error=failed.message)


async def calls_a_reconciler() -> None:
    outcome = await recover_stuck_upload(Upload("a", 1), ctx=injected)  # the function stays what it is
    assert_type(outcome, To | Stay | Again | None)
    await recover_stuck_upload("a")  # type: ignore[arg-type, call-arg]


wallpapers.delete("initiated", stale_for="1h", every="5m", max_fraction=0.5)
wallpapers.move("trial", to="expired", stale_for="14d", set={"note": "over"})
wallpapers.reconcile("uploading", stale="10m")  # type: ignore[call-arg]
wallpapers.reconcile("uploading", claim="lock")  # type: ignore[arg-type]
Again(5)  # type: ignore[arg-type]


@app.scan("orphaned-objects", every="24h", concurrency=8)
async def list_objects(cursor: str | None) -> AsyncIterator[tuple[str, str]]:
    yield "key", "cursor"


@list_objects.each
async def remove_if_orphaned(item: str) -> None: ...


async def looks_after_them() -> None:
    async with app.transaction() as tx:
        assert_type(tx, AsyncConnection[Any])
    assert_type((await app.recovery("7d")).caught_up, bool)
    await app.reconcilers.release("recover_stuck_upload", ["a"])


async def reading() -> None:
    handle = await add.enqueue(1)
    assert_type(handle.result_sync("1s"), int)
    assert_type(await handle.status(), JobDetails)
    assert_type(await app.jobs.get(handle), JobDetails | None)
    assert_type(app.jobs.get_sync(17), JobDetails | None)
    assert_type(await app.jobs.list(state="dead", arguments={"a": 1}), JobPage)
    assert_type(app.jobs.list_sync(limit=5).jobs, tuple[JobSummary, ...])
    assert_type(app.jobs.count_sync(kind="add"), JobCount)
    assert_type(app.workers.list_sync(), tuple[WorkerInfo, ...])
    await app.jobs.list(colour="red")  # type: ignore[call-arg]
    app.jobs.get_sync("17")  # type: ignore[arg-type]
