"""One idempotency key per occasion: the same through retries and takeovers, another one when the row comes back."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.watching import until
from tests.work.rows.field import Field
from trueup import Again, Context, Retry, Stay, To
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio


class Keys(list[str]):
    """A handler that notes its keys and returns, or raises, one thing after the other."""

    def __init__(self, *ends: Any) -> None:
        super().__init__()
        self._ends = iter(ends)

    async def handler(self, row: Any, *, ctx: Context) -> Any:
        self.append(ctx.idempotency_key)
        end = next(self._ends)
        if isinstance(end, BaseException):
            raise end
        return end(row) if callable(end) else end


async def swept(field: Field, clock: ManualClock, times: int) -> None:
    for _ in range(times):
        await field.sweep()
        clock.advance(days=32)


async def test_a_row_that_is_charged_every_month_has_a_key_per_month(field: Field, clock: ManualClock) -> None:
    def next_month(row: Any) -> Any:
        return Stay(due_at=row.due_at + timedelta(days=30))

    keys = Keys(*[next_month] * 3)
    await field.put()
    field.fix(keys.handler, due_at="due_at")
    await swept(field, clock, 3)
    assert len(set(keys)) == 3
    assert all(key.startswith("fix:1:") for key in keys)


@pytest.mark.parametrize("end", [ValueError("later"), Again("1h")], ids=["retry", "Again"])
async def test_what_is_not_over_keeps_its_key(field: Field, clock: ManualClock, end: Any) -> None:
    keys = Keys(end, end, To("done"))
    await field.put()
    field.fix(keys.handler, retry=Retry(max_attempts=5))
    await swept(field, clock, 3)
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_a_row_that_is_looked_at_again_although_nothing_was_to_do_has_a_new_key(
    field: Field, clock: ManualClock
) -> None:
    keys = Keys(None, None)
    await field.put()
    field.fix(keys.handler)
    await swept(field, clock, 2)
    assert len(set(keys)) == 2


async def test_a_row_that_is_reopened_has_a_new_key(field: Field, clock: ManualClock) -> None:
    keys = Keys(To("done"), To("done"))
    await field.put()
    field.fix(keys.handler)
    await field.sweep()
    await field.do("update things set state = 'new', changed_at = changed_at - interval '1 h'")
    await field.sweep()
    assert len(set(keys)) == 2


async def test_a_row_that_is_released_from_quarantine_keeps_its_key(field: Field, clock: ManualClock) -> None:
    keys = Keys(ValueError(), To("done"))
    await field.put()
    field.fix(keys.handler, retry=Retry(max_attempts=1))
    await field.sweep()
    await field.app.reconcilers.release("fix", ["1"])
    await field.sweep()
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_row_that_is_taken_over_keeps_its_key(field: Field, clock: ManualClock) -> None:
    keys = Keys(To("done"))
    await field.put()
    field.fix(keys.handler)
    sweeper = await field.gather()
    (row,) = (await sweeper.rows.claims.fresh(uuid4(), 1, None)).rows
    clock.advance(seconds=31)
    await field.sweep()
    assert keys == [row.idempotency_key]


async def test_a_row_whose_handler_a_stop_interrupted_keeps_its_key(live: Field) -> None:
    keys: list[str] = []
    begun = asyncio.Event()

    async def handler(row: Any, *, ctx: Context) -> Any:
        keys.append(ctx.idempotency_key)
        begun.set()
        if len(keys) == 1:
            await asyncio.Event().wait()
        return To("done")

    await live.put()
    live.fix(handler, run_at_start=True)
    worker = live.app.worker()
    await worker.start()
    await begun.wait()
    worker.request_stop()
    worker.request_stop()
    await worker.stop()
    async with live.app.worker():
        await until(lambda: len(keys) == 2)
    assert len(set(keys)) == 1


# -- values that Python does not have ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["infinity", "-infinity", "2026-03-01 12:00+00"])
async def test_a_moment_that_is_written_back_is_as_it_was(field: Field, value: str) -> None:
    await field.put()
    await field.do("alter table things add at timestamptz, add day date, add local timestamp")
    await field.do("update things set at = %s, day = %s::timestamptz::date, local = %s", (value, value, value))
    before = await field.value("select (at, day, local)::text from things")
    field.fix(lambda row: To("done", at=row.at, day=row.day, local=row.local))
    assert (await field.sweep()).changed == 1
    assert await field.value("select (at, day, local)::text from things") == before


async def test_a_datetime_without_a_zone_is_utc_whatever_the_session_has(field: Field) -> None:
    await field.put()
    await field.do("alter role current_user set timezone = 'Asia/Tokyo'")
    try:
        field.fix(lambda row: To("done", due_at=datetime(2030, 1, 1, 12)))  # noqa: DTZ001
        await field.sweep()
        assert await field.value("select due_at = '2030-01-01 12:00+00' from things")
    finally:
        await field.do("alter role current_user reset timezone")


async def test_stay_works_on_a_table_whose_key_is_always_generated(field: Field) -> None:
    await field.do("create table plain (id int generated always as identity primary key, note text)")
    await field.do("insert into plain (note) values ('a')")
    field.app.table("plain", key="id").reconcile(name="fix", every="1h")(lambda row: Stay())
    assert (await field.sweep()).changed == 1


# -- rows in front that nobody can have ----------------------------------------------------------------------------------------


async def test_a_thousand_locked_rows_in_front_hide_no_row_that_is_due_again(field: Field, clock: ManualClock) -> None:
    failing = True

    async def handler(row: Any) -> Any:
        if failing:
            raise ValueError
        return To("done")

    await field.put(1_205)
    field.fix(handler, batch=500, concurrency=50, retry=Retry(first="1s", max_attempts=9))
    await field.sweep()
    await field.do("update trueup.rows set due_at = due_at + key::int * interval '1 us'")
    failing = False
    clock.advance(seconds=10)
    async with field.app.store.pool.use() as user, user.transaction():
        await user.execute("select from things where id <= 1200 for update")
        assert (await field.sweep()).changed == 5
    assert (await field.sweep()).changed == 1_200


async def test_what_postgresql_says_about_a_row_has_no_contents_of_it(field: Field, clock: ManualClock) -> None:
    await field.put()
    await field.do("update things set note = 'DE89 3704 0044'")
    field.fix(lambda row: To("done", n=5_000), retry=Retry(max_attempts=2))
    await swept(field, clock, 2)
    stored = await field.value("select (errors::text || reason) from trueup.rows")
    assert 'violates check constraint "small" (SQLSTATE 23514)' in stored.replace("\\", "")
    assert "DE89" not in stored
    assert "DETAIL" not in stored
    assert not any("DE89" in repr(event) for event in field.events.events)
