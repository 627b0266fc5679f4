"""Rows with large values: a claim takes so many of them that the answer fits into the worker's memory, and a sweep takes all."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import pytest

from tests.work.rows.field import Field
from tests.work.rows.test_poison import mode_of
from trueup import Retry, To
from trueup.events import RowsClaimed
from trueup.store.rows.compose import claiming
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

LARGE = {
    "text": "repeat(n::text, 4000 / length(n::text))",
    "bytea": "convert_to(repeat('x', 4000), 'UTF8')",
    "jsonb": "(select jsonb_agg(md5(n::text || i)) from generate_series(1, 115) as i)",
    "text[]": "(select array_agg(md5(n::text || i)) from generate_series(1, 120) as i)",
}
ROWS, MOST = 40, 10_000  # bytes: three rows, the last of which exceeds it


class Narrow(NamedTuple):
    id: int
    state: str


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "MAX_CLAIMED_BYTES", MOST)


async def prepare(field: Field, kind: str) -> None:
    await field.do("drop table things, log")
    await field.do(
        f"create table things (id int primary key, state text not null, owner text, until timestamptz, large {kind})"
    )
    await field.do(
        f"insert into things (id, state, large) select n, 'new', {LARGE[kind]} from generate_series(1, {ROWS}) n"
    )


def together(field: Field) -> list[int]:
    counts = [event.count for event in field.events.of(RowsClaimed)]
    field.events.events.clear()
    return counts


@pytest.mark.parametrize("order_by", [None, "id desc"])
@pytest.mark.parametrize("mode", ["plain", "claimed_as", "lease_columns", "row_lock"])
@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.matrix
async def test_few_large_rows_are_claimed_together_and_all_are_handled_once(
    field: Field, clock: ManualClock, kind: str, mode: str, order_by: str | None
) -> None:
    calls, fails = Counter[int](), True

    def fix(row: Any) -> To:
        calls[row.id] += 1
        if fails and row.id % 2:
            raise ValueError("once")
        return To("done")

    await prepare(field, kind)
    spec, options = mode_of(mode)
    spec = {name: value for name, value in spec.items() if name == "lease_columns"}
    table = field.app.table("things", key="id", state="state", **spec)
    retry = Retry(max_attempts=3, first="1s", factor=1, jitter=False)
    field.fix(fix, table=table, stale_for=None, order_by=order_by, batch=100, retry=retry, **options)
    await field.sweep()
    assert (max(together(field)), set(calls.values()), len(calls)) == (3, {1}, ROWS)
    fails = False
    clock.advance(minutes=1)
    await field.sweep()
    assert (max(together(field)), calls.total()) == (3, ROWS + ROWS // 2)
    assert await field.states() == {"done": ROWS}
    assert await field.value("select count(*) from trueup.rows") == 0


async def test_of_rows_larger_than_all_the_room_one_waits_at_a_time(field: Field) -> None:
    waiting: list[int] = []

    async def fix(row: Any) -> To:
        await asyncio.sleep(0.01)  # as long as several claims take
        waiting.append(field.sweeper().hand.waiting)
        return To("done")

    await prepare(field, "text")
    await field.do("update things set large = repeat(large, 10)")
    field.fix(fix, table=field.app.table("things", key="id", state="state"), stale_for=None, concurrency=1)
    await field.sweep()
    assert set(together(field)) == {1}
    assert max(waiting) == 1
    assert await field.states() == {"done": ROWS}


async def test_rows_of_which_only_small_columns_are_read_are_claimed_together(field: Field) -> None:
    def fix(row: Narrow) -> To:
        return To("done")

    await prepare(field, "text")
    field.fix(fix, table=field.app.table("things", key="id", state="state"), stale_for=None)
    await field.sweep()
    assert together(field) == [ROWS]
