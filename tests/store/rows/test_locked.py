"""Rows under their lock: read anew, written to with or without a look at whether they are as they were read, or said why not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from tests.store.rows_desk import RowsDesk, claimed, desk_on, one
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.outcome import Delete, Stay, To
from trueup.store.db import message
from trueup.store.rows.locked import Locked, not_as_read
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

TABLE = "create table t (id int primary key, state text not null, changed_at timestamptz, version int, note text)"
OUTCOMES = [To("done", note="x"), Stay(note="x"), Delete()]


async def with_tx(row: Any, *, tx: AsyncConnection[Any]) -> None:
    """A handler that could change its row itself."""


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        await desk.run("insert into t values (1, 'open', '2026-06-01 11:00:00.123456+00', 7)")
        yield desk


async def lock(locked: Locked, row: ClaimedRow, tx: AsyncConnection[Any]) -> Mapping[str, Any] | None:
    return locked.values(row, (await message.send(tx, *locked.locking(row))).check())


@pytest.mark.matrix(pairs=("outcome", "spec", "handler"))
@pytest.mark.parametrize("handler", [None, with_tx], ids=["alone", "with tx"])
@pytest.mark.parametrize("spec", [{}, {"changed_at": "changed_at"}, {"version": "version"}])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
async def test_a_row_is_locked_read_as_it_is_now_and_written(
    desk: RowsDesk, handler: Any, spec: dict[str, Any], outcome: Any
) -> None:
    rows = await desk.rows("open", claim="row_lock", handler=handler, spec=spec)
    row, locked = await one(rows), Locked(rows)
    await desk.run("update t set note = 'new'")
    async with desk.elsewhere() as tx:
        values = await lock(locked, row, tx)
        assert values is not None
        assert values["note"] == "new"
        answers = await message.send(tx, locked.writing(row, outcome), b"COMMIT")
        assert answers.check().count(0) == 1
    left = [(each["state"], each["note"]) for each in await desk.run("select state, note from t")]
    assert left == {To: [("done", "x")], Stay: [("open", "x")], Delete: []}[type(outcome)]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
async def test_a_locked_row_that_its_handler_changed_is_not_written_nor_committed(desk: RowsDesk, outcome: Any) -> None:
    rows = await desk.rows("open", claim="row_lock", handler=with_tx)
    row, locked = await one(rows), Locked(rows)
    async with desk.elsewhere() as tx:
        await lock(locked, row, tx)
        await tx.execute("update t set note = 'mine'")
        answers = await message.send(tx, locked.writing(row, outcome), b"COMMIT")
        assert (len(answers), not_as_read(answers.error)) == (0, True)
    assert [each["note"] for each in await desk.run("select note from t")] == [None]


async def test_one_message_ends_with_one_row_and_begins_with_the_next(desk: RowsDesk) -> None:
    await desk.run("insert into t values (2, 'open')")
    rows = await desk.rows("open", claim="row_lock")
    (first, second), locked = await claimed(rows), Locked(rows)
    async with desk.elsewhere() as tx:
        assert await lock(locked, first, tx) is not None
        answers = await message.send(tx, locked.writing(first, To("done")), b"COMMIT", *locked.locking(second))
        values = locked.values(second, answers.check())
        assert values is not None
        assert values["id"] == 2
        async with desk.elsewhere() as user:
            free = await user.execute("select id, state from t for update skip locked")
            assert await free.fetchall() == [(1, "done")]


@pytest.mark.parametrize(
    ("theirs", "expected"), [("update t set state = 'paused'", "gone"), ("delete from t", "gone"), ("select 1", "busy")]
)
async def test_a_row_that_cannot_be_locked_says_why(desk: RowsDesk, theirs: str, expected: str) -> None:
    rows = await desk.rows("open", claim="row_lock")
    row, locked = await one(rows), Locked(rows)
    await desk.run(theirs)
    async with desk.elsewhere() as user, desk.elsewhere() as tx:
        if expected == "busy":
            await user.execute("select from t for update")
        assert await lock(locked, row, tx) is None
        assert await locked.why_not(row, tx) == expected


@pytest.mark.parametrize("how", ["its lease has passed", "claimed anew"])
async def test_a_row_whose_claim_was_lost_is_not_locked(desk: RowsDesk, clock: ManualClock, how: str) -> None:
    rows: Rows = await desk.rows("open", claim="row_lock")
    row, locked = await one(rows), Locked(rows)
    if how == "claimed anew":  # by the same worker: only the term differs
        await desk.run("update trueup.rows set term = term + 1")
    else:
        clock.advance(seconds=30)
    async with desk.elsewhere() as tx:
        assert await lock(locked, row, tx) is None
        assert await locked.why_not(row, tx) == "lost"
