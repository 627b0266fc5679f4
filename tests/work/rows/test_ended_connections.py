"""A row whose write ends its connection (its backend crashes, a value is larger than the protocol allows) never blocks the others.

To the worker that looks as if the database had gone away: no answer comes. The others are done within seconds, and the culprit is
quarantined with what has happened to it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tests.work.rows.field import NAME, Field
from tests.work.rows.test_poison import CLAIM, MODES, WRITE, mode_of
from trueup import App, Context, Retry, To
from trueup.events import RowQuarantined

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ROWS, CULPRIT = 25, 13
WITHIN = 40.0  # seconds; it takes three, or ten where a row is left until its lease has passed
RETRY = Retry(max_attempts=2, first="200ms", factor=1, jitter=False)
COLUMNS = "alter table things add owner text, add until timestamptz, add version int not null default 0;"
HANG_UP = (
    "create function poison() returns trigger language plpgsql as $$ begin"
    " if old.id = 13 and {when} then perform pg_terminate_backend(pg_backend_pid()); end if; return coalesce(new, old); end $$;"
    " create trigger poison before update or delete on things for each row execute function poison()"
)


async def suffer(field: Field) -> RowQuarantined:
    """Until the others are done and the culprit is quarantined."""
    async with asyncio.timeout(WITHIN):
        while await field.value("select count(*) from things where state = 'new' or state = 'busy'") > 1:
            await asyncio.sleep(0.05)
        (event,) = await field.events.seen(RowQuarantined)
    assert (event.key, event.attempt) == (str(CULPRIT), 2)
    assert "terminating connection" in event.error or "connection" in event.error
    (listed,) = await field.app.reconcilers.quarantined(NAME)
    assert listed["error"]["message"] == event.error
    return event


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("mode", "stage"),
    [*((mode, "write") for mode in MODES), *((mode, "claim") for mode in ("claimed_as", "lease_columns", "both"))],
)
async def test_a_row_whose_write_ends_its_connection(app: App, live: Field, mode: str, stage: str) -> None:
    await live.do(COLUMNS)
    await live.do(HANG_UP.format(when=WRITE if stage == "write" else CLAIM))
    calls: list[int] = []

    async def returns(row: Any) -> To:
        calls.append(row.id)
        return To("done", n=row.n + 1)

    async def in_transaction(row: Any, *, ctx: Context) -> None:
        async with ctx.transaction(await returns(row)):
            pass

    spec, options = mode_of(mode)
    table = app.table("things", key="id", state="state", changed_at="changed_at", **spec)
    await live.put(ROWS)
    handler = in_transaction if mode == "ctx.transaction" else returns
    live.fix(handler, table=table, every="200ms", run_at_start=True, lease_for="2s", retry=RETRY, **options)
    async with app.worker():
        event = await suffer(live)
    assert await live.value("select count(*) from things where state = 'done' and n = 1") == ROWS - 1
    assert len([key for key in calls if key != CULPRIT]) == ROWS - 1, "a good row was handled twice"
    if mode != "ctx.transaction":
        assert "the connection to PostgreSQL ended whenever this was written" in event.error


@pytest.mark.parametrize("does", ["move", "delete"])
async def test_a_row_whose_move_or_deletion_ends_its_connection(app: App, live: Field, does: str) -> None:
    await live.do(HANG_UP.format(when="true"))
    await live.put(ROWS)
    options: dict[str, Any] = {"stale_for": "10m", "every": "200ms", "name": NAME, "run_at_start": True, "retry": RETRY}
    if does == "move":
        live.table.move("new", to="done", **options)
    else:
        live.table.delete("new", **options)
    async with app.worker():
        await suffer(live)
    assert await live.value("select count(*) from things where state = 'new'") == 1


async def test_a_server_that_hangs_up_now_and_then_costs_no_attempt(app: App, live: Field) -> None:
    """Every session of the worker is ended three times while outcomes are pending."""
    calls: list[int] = []

    async def handler(row: Any) -> To:
        calls.append(row.id)
        return To("done")

    await live.put(ROWS)
    live.fix(handler, every="200ms", run_at_start=True, retry=RETRY)
    async with await psycopg.AsyncConnection.connect(app.store.url, autocommit=True) as user:
        await user.execute("begin; lock table things in share mode")
        async with app.worker():
            async with asyncio.timeout(WITHIN):
                while len(calls) < ROWS:
                    await asyncio.sleep(0.02)
            for _ in range(3):
                await user.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where datname = current_database() and pid <> pg_backend_pid()"
                )
                await asyncio.sleep(0.2)
            await user.execute("commit")
            async with asyncio.timeout(WITHIN):
                while await live.states() != {"done": ROWS}:
                    await asyncio.sleep(0.05)
    assert len(calls) == ROWS
