"""`meta` comes with its job on every way into the table, to its handler, into the history and back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from tests.store.desk import Desk
from tests.store.test_moves import by_holder, finish
from trueup import App, Context, InvalidArguments, Job
from trueup.errors import ConfigError
from trueup.jobs.middleware import MAX_META
from trueup.store.db.migrate import all_steps
from trueup.store.inserting import ONE_STATEMENT
from trueup.store.store import Store
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

# What COPY's text format, JSON and SQL each would trip over.
META = {"trace": "00-ab\tcd\\n\n", "a \\N key": [1, None, {"deep": "'\"%(now)s"}], "ü": 1.5}
STORED = json.dumps(META)
Ask = Callable[[Job[..., None], App], Awaitable[object]]


def using(job: Job[..., None], **options: Any) -> Any:
    return job.using(meta=META, **options)


async def in_transaction(job: Job[..., None], app: App) -> None:
    async with app.store.pool.transaction() as tx:
        await using(job, tx=tx).enqueue(1)


async def at_once(job: Job[..., None], _: App) -> None:
    await asyncio.gather(*(using(job).enqueue(n) for n in range(20)))


async def replacing(job: Job[..., None], _: App) -> None:
    await job.using(unique="u", meta={"old": 1}).enqueue(1)
    await using(job, unique="u", on_conflict="replace").enqueue(2)


def many(size: int) -> Ask:
    return lambda job, _: using(job).enqueue_many((n,) for n in range(size))


def many_sync(size: int) -> Ask:
    return lambda job, _: asyncio.to_thread(using(job).enqueue_many_sync, [(n,) for n in range(size)])


WAYS: dict[str, Ask] = {
    "one": lambda job, _: using(job).enqueue(1),
    "sync": lambda job, _: asyncio.to_thread(using(job).enqueue_sync, 1),
    "at once": at_once,
    "in a transaction": in_transaction,
    "unique": lambda job, _: using(job, unique="u", unique_for="1h").enqueue(1),
    "replacing": replacing,
    "a statement": many(ONE_STATEMENT),
    "a stream": many(ONE_STATEMENT + 1),
    "a stream, sync": many_sync(ONE_STATEMENT + 1),
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_enqueue_stores_it(app: App, way: str) -> None:
    @app.job
    async def send(n: int) -> None: ...

    await app.open()
    await WAYS[way](send, app)
    async with app.store.pool.use() as connection:
        rows = await (await connection.execute("select distinct meta from trueup.jobs")).fetchall()
    assert rows == [(META,)]


async def test_without_it_the_column_is_null(app: App) -> None:
    @app.job
    async def send(n: int) -> None: ...

    handle = await send.enqueue(1)
    await send.enqueue_many([(n,) for n in range(ONE_STATEMENT + 1)])
    await send.using(meta={}).enqueue(1)
    async with app.store.pool.use() as connection:
        rows = await (await connection.execute("select distinct meta from trueup.jobs")).fetchall()
    assert rows == [(None,)]
    assert (await handle.status()).meta is None


@pytest.mark.parametrize("move", by_holder)
async def test_every_move_of_a_holder_carries_it(desk: Desk, move: str) -> None:
    job = await desk.running(meta=STORED)
    assert json.loads(job.meta or "") == META
    assert await finish(desk, move, job) == {job.id}
    assert (await desk.row(job.id))["meta"] == META


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_rescue_carries_it(desk: Desk, store: Store, clock: ManualClock, attempts: int) -> None:
    job = await desk.running(meta=STORED, max_attempts=attempts)
    clock.advance(minutes=1)
    (rescued,) = await store.jobs.rescue()
    assert (rescued.job_id, rescued.state) == (job.id, "dead" if attempts == 1 else "queued")
    assert (await desk.row(job.id))["meta"] == META


async def test_cancelling_and_reviving_carry_it(desk: Desk, store: Store) -> None:
    cancelled = await desk.put(meta=STORED)
    assert await store.jobs.cancel([cancelled], "why") == {cancelled}
    assert (await desk.row(cancelled))["meta"] == META
    dead = await desk.dead(meta=STORED)
    assert (await desk.row(dead))["meta"] == META
    assert await store.jobs.revive([dead]) == {dead}
    row = await desk.row(dead)
    assert (row["state"], row["meta"]) == ("queued", META)


@pytest.mark.parametrize("options", [{}, {"limit": 1}, {"limit": 2, "fair_by": "n"}], ids=["plain", "lane", "turns"])
async def test_the_handler_reads_it_and_its_children_do_not_inherit_it(app: App, options: dict[str, Any]) -> None:
    seen: list[Any] = []

    @app.job
    async def child(ctx: Context) -> None:
        seen.append(ctx.meta)

    @app.job(**options)
    async def send(ctx: Context, n: int) -> None:
        seen.append(ctx.meta)
        await child.enqueue()

    worker = ManualWorker(app)
    await worker.begin()
    handle = await send.using(meta=META).enqueue(1)
    assert await worker.run_pending() == 2
    await worker.end()
    assert seen == [META, {}]
    assert (await handle.status()).meta == META


@pytest.mark.parametrize(
    ("meta", "says"),
    [
        ({"a": object()}, "meta"),
        ({"a": float("nan")}, r"meta\.a"),
        ({"a": "\0"}, r"meta\.a"),
        ({1: "a"}, r"job 'send': meta=.*mapping from names"),
        (["a"], "mapping from names"),
        ({"a": "x" * MAX_META}, "over the limit"),
    ],
    ids=["object", "nan", "nul", "key", "list", "size"],
)
async def test_what_cannot_be_stored_is_refused_when_it_is_given(app: App, meta: Any, says: str) -> None:
    @app.job
    async def send() -> None: ...

    with pytest.raises((InvalidArguments, ConfigError), match=says):
        send.using(meta=meta)


async def test_roles_with_column_privileges_still_enqueue_and_replace_after_the_migration(
    empty_database_url: str,
) -> None:
    """The step grants `meta` to those who could write `args`, and to no one else."""
    step = next(each for each in all_steps() if each.title == "meta")
    assert step.step == "pre"
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(
            "create schema trueup; create table trueup.jobs (args jsonb); create table trueup.history (args jsonb)"
        )
        for role in ("meta_web", "meta_reader"):
            connection.execute(f"drop role if exists {role}; create role {role}")
        try:
            connection.execute("grant insert (args), update (args) on trueup.jobs to meta_web")
            connection.execute("grant select (args) on trueup.jobs to meta_reader")
            connection.execute(step.text.replace("{schema}", "trueup"))
            rights = connection.execute(
                "select grantee::text, privilege_type::text from information_schema.column_privileges"
                " where table_schema = 'trueup' and column_name = 'meta' and grantee like 'meta\\_%' order by 1, 2"
            ).fetchall()
        finally:
            connection.execute("drop owned by meta_web, meta_reader; drop role meta_web, meta_reader")
    assert rights == [("meta_web", "INSERT"), ("meta_web", "UPDATE")]
