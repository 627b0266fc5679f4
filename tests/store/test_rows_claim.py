"""Claims of rows of a user's table: which, in which order, how many, and each once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.store.rows_desk import (
    RowsDesk,
    again,
    claimed,
    desk_on,
    failure,
    keys,
    one,
    settle_all,
    settled,
    sweep,
)
from tests.support.interleave import OneConnection, Side, interleave, overlap
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Release, Rest, RetryAfter, SetAside
from trueup.reconcile.outcome import Stay, To
from trueup.store.db import message
from trueup.store.rows.locked import Locked
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

TABLE = "create table t (id int primary key, state text not null, changed_at timestamptz, due_at timestamptz, created_at timestamptz)"
FILL = "insert into t select n, 'open', timestamptz '2026-06-01 11:00+00' - n * interval '1 s' from generate_series(1, {}) as n"
STALE: dict[str, Any] = {"stale_for": "10m", "spec": {"changed_at": "changed_at"}}
HOUR = timedelta(hours=1)


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        yield desk


def ids(claimed: list[ClaimedRow]) -> list[int]:
    return [int(row.key) for row in claimed]


@dataclass
class Small:
    state: str
    note: str = "none"


@dataclass
class Other:
    note: str = "none"


async def put(desk: RowsDesk, *rows: tuple[Any, ...]) -> None:
    """(id, state, changed_at, due_at, created_at), as far as it matters."""
    for row in rows:
        await desk.run("insert into t values (%s, %s, %s, %s, %s)", *(*row, *[None] * (5 - len(row))))


# -- which ---------------------------------------------------------------------------------------------------------------


async def test_a_claim_takes_stale_rows_without_a_time_first_and_then_the_oldest(
    desk: RowsDesk,
) -> None:
    await put(desk, (1, "open", NOON - HOUR), (2, "open", NOON - 2 * HOUR), (3, "open", None), (4, "done", NOON - HOUR))
    await put(desk, (5, "open", NOON), (6, "paused", NOON - 1.5 * HOUR), (7, "paused", None))
    rows = await desk.rows("open", "paused", **STALE)
    assert ids(await claimed(rows)) == [3, 7, 2, 6, 1]


async def test_a_row_is_stale_when_it_is_older_than_and_not_when_it_is_exactly_as_old(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await put(desk, (1, "open", NOON - timedelta(minutes=10)))
    rows = await desk.rows("open", **STALE)
    assert await claimed(rows) == []
    clock.advance(microseconds=1)
    row = await one(rows)
    assert (row.due_at, row.lateness) == (NOON, timedelta(microseconds=1))


async def test_a_row_is_due_at_its_very_moment_and_never_without_one(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, (1, "open", None, NOON + HOUR), (2, "open", None, None), (3, "open", None, NOON))
    rows = await desk.rows("open", due_at="due_at")
    assert ids(await claimed(rows)) == [3]
    clock.advance(hours=1)
    assert ids(await claimed(rows)) == [1]


async def test_without_a_time_rows_come_by_their_key(desk: RowsDesk) -> None:
    await put(desk, (2, "open"), (10, "open"), (1, "open"))
    assert ids(await claimed(await desk.rows("open"))) == [1, 2, 10]


@pytest.mark.parametrize(("order_by", "expected"), [("created_at", [4, 3, 2, 1]), ("created_at desc", [4, 1, 2, 3])])
async def test_rows_come_in_the_order_asked_for_and_those_without_a_value_first(
    desk: RowsDesk, order_by: str, expected: list[int]
) -> None:
    await put(desk, *((n, "open", None, None, NOON - n * HOUR) for n in (1, 2, 3)), (4, "open"))
    rows = await desk.rows("open", order_by=order_by)
    assert ids(await claimed(rows, most=1)) == expected[:1]
    assert [int(key) for key in keys(await sweep(rows, 1))] == expected[1:]


async def test_an_order_of_its_own_goes_with_staleness_too(desk: RowsDesk) -> None:
    await put(desk, *((n, "open", NOON - HOUR, None, NOON - n * HOUR) for n in (1, 2, 3)))
    await put(desk, (4, "open", None, None, NOON - 9 * HOUR), (5, "open", NOON, None, NOON - 9 * HOUR))
    assert ids(await claimed(await desk.rows("open", order_by="created_at", **STALE))) == [4, 3, 2, 1]


async def test_without_states_every_row_is_meant(desk: RowsDesk) -> None:
    await put(desk, (1, "open"), (2, "done"))
    assert ids(await claimed(await desk.rows(state=None))) == [1, 2]


async def test_a_handler_gets_the_columns_it_names_of_those_there_are(desk: RowsDesk) -> None:
    def look(row: Small) -> None:
        """Nobody calls it."""

    await put(desk, (1, "open"))
    rows = await desk.rows("open", handler=look)
    assert rows.columns == ("state",)
    assert (await one(rows)).values == {"state": "open"}


async def test_a_handler_that_names_no_column_that_there_is_gets_none_that_it_named(desk: RowsDesk) -> None:
    def look(row: Other) -> None:
        """Nobody calls it."""

    await put(desk, (1, "open"))
    row = await one(await desk.rows("open", handler=look))
    assert row.key == "1"
    assert "note" not in row.values


# -- how many, and each once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 7, 100])
async def test_a_claim_never_gives_more_than_asked_for(desk: RowsDesk, most: int) -> None:
    await desk.run(FILL.format(150))
    rows = await desk.rows("open", **STALE)
    assert len(await claimed(rows, most=most)) == most
    batches = await sweep(rows, most)
    assert max(len(batch.rows) for batch in batches) <= most


async def test_a_claim_of_rows_whose_time_has_come_again_never_gives_more_than_asked_for(desk: RowsDesk) -> None:
    await desk.run(FILL.format(50))
    await desk.plant("select n::text from generate_series(1, 50) as n", due_in="-1 h")
    rows = await desk.rows("open", **STALE)
    taken = await again(rows, most=7)
    assert len(taken) == 7
    assert len(await again(rows, most=1, suspects=True)) == 0


async def test_every_row_is_claimed_once_over_many_windows_with_ties_in_the_order(desk: RowsDesk) -> None:
    # 3,000 rows of which each moment has 50, 10 have none; 1,500 are known already and in the way.
    await desk.run(
        "insert into t select n, case when n % 3 = 0 then 'open' else 'paused' end,"
        " case when n <= 2990 then timestamptz '2026-06-01 11:00+00' - n % 60 * interval '1 s' end from generate_series(1, 3000) as n"
    )
    await desk.plant("select n::text from generate_series(1, 3000, 2) as n")
    rows = await desk.rows("open", "paused", **STALE)
    found = keys(await sweep(rows, 90))
    assert len(found) == 1500
    assert {int(key) for key in found} == set(range(2, 3001, 2))


@pytest.mark.parametrize("order_by", ["created_at desc", "created_at", "id"])
async def test_every_row_is_claimed_once_in_any_order(desk: RowsDesk, order_by: str) -> None:
    await desk.run(
        "insert into t select n, 'open', null, null, case when n % 7 > 0 then timestamptz '2026-06-01Z' - n % 5 * interval '1 s' end"
        " from generate_series(1, 2500) as n"
    )
    found = keys(await sweep(await desk.rows("open", order_by=order_by), 200))
    assert sorted(map(int, found)) == list(range(1, 2501))


async def test_a_window_full_of_known_rows_is_passed_over_and_ends_nothing(desk: RowsDesk) -> None:
    await desk.run(FILL.format(2_500))
    await desk.plant("select n::text from generate_series(101, 2500) as n")  # the oldest
    rows = await desk.rows("open", **STALE)
    first = await rows.claims.fresh(uuid4(), 10, None)
    assert (first.rows, first.exhausted) == ([], False)
    assert first.position is not None
    assert sorted(map(int, keys(await sweep(rows, 10)))) == list(range(1, 101))


async def test_a_sweep_finds_rows_that_appear_ahead_of_its_position(desk: RowsDesk) -> None:
    await desk.run(FILL.format(20))
    rows = await desk.rows("open", **STALE)
    first = await rows.claims.fresh(uuid4(), 10, None)
    await put(desk, (100, "open", NOON - HOUR), (101, "open", NOON - 5 * HOUR))
    second = await rows.claims.fresh(uuid4(), 100, first.position)
    assert ids(second.rows) == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 100]
    assert second.exhausted


# -- what is passed over --------------------------------------------------------------------------------------------------


async def test_a_held_row_is_not_claimed_again_nor_one_that_rests_or_was_set_aside(desk: RowsDesk) -> None:
    await put(desk, *((n, "open") for n in (1, 2, 3, 4)))
    rows = await desk.rows("open")
    holder = uuid4()
    first = await claimed(rows, holder)
    verdicts = [Rest(HOUR, succeeded=True), RetryAfter(HOUR, failure()), SetAside("no", failure())]
    await rows.settle(holder, first[:3], verdicts)
    assert await claimed(rows) == []
    assert await again(rows) == []


async def test_two_reconcilers_on_one_table_do_not_know_of_each_other(desk: RowsDesk) -> None:
    await put(desk, (1, "open"))
    assert ids(await claimed(await desk.rows("open", name="a"))) == [1]
    assert ids(await claimed(await desk.rows("open", name="b"))) == [1]


async def test_a_row_that_somebody_has_locked_is_passed_over(desk: RowsDesk) -> None:
    await put(desk, (1, "open"), (2, "open"))
    rows = await desk.rows("open")
    async with desk.elsewhere() as user:
        await user.execute("select from t where id = 1 for update")
        assert ids(await claimed(rows)) == [2]
    assert ids(await claimed(rows)) == [1]


async def test_a_row_that_another_one_is_made_to_refer_to_is_claimed_all_the_same(desk: RowsDesk) -> None:
    await desk.run("create table part (t int references t)")
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    async with desk.elsewhere() as user:
        await user.execute("insert into part values (1)")
        assert ids(await claimed(rows)) == [1]


class Late:
    """A claim whose snapshot is older than what somebody else does, and commits, before it comes to lock the row.

    A function in `where=` is called while the table is read, which is after the snapshot was taken: there it waits until the
    other one has committed.
    """

    GATE = "create function gate() returns bool language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(7); return true; end $$"

    def __init__(self, desk: RowsDesk, **options: Any) -> None:
        self.desk, self.options = desk, options

    async def claim(
        self, store: Store, meanwhile: str, *states: str, take: Callable[[Rows], Awaitable[list[ClaimedRow]]] = claimed
    ) -> list[ClaimedRow]:
        await self.desk.run(self.GATE)
        spec = {**self.options.pop("spec", {}), "where": "gate()"}

        async def hold(side: Side) -> None:
            await side.connection.execute("select pg_advisory_xact_lock(7)")
            await side.connection.execute(meanwhile.encode())

        async def then(side: Side) -> list[ClaimedRow]:
            rows = await self.desk.rows(*states, database=OneConnection(side.connection), spec=spec, **self.options)
            return await take(rows)

        _, ended = await interleave(store, hold=hold, then=then)
        return ended.value


@pytest.mark.parametrize(
    "meanwhile",
    [
        "update t set state = 'done' where id = 1",
        "update t set changed_at = '2026-06-01 12:00+00' where id = 1",
        "delete from t where id = 1",
    ],
)
async def test_a_row_that_is_touched_between_looking_and_locking_is_not_claimed(
    desk: RowsDesk, store: Store, meanwhile: str
) -> None:
    await put(desk, (1, "open", NOON - HOUR), (2, "open", NOON - HOUR))
    assert ids(await Late(desk, **STALE).claim(store, meanwhile, "open")) == [2]


async def test_a_row_whose_due_time_is_put_off_between_looking_and_locking_is_not_claimed(
    desk: RowsDesk, store: Store
) -> None:
    await put(desk, (1, "open", None, NOON), (2, "open", None, NOON))
    meanwhile = "update t set due_at = due_at + interval '1 h' where id = 1"
    assert ids(await Late(desk, due_at="due_at").claim(store, meanwhile, "open")) == [2]


async def test_a_row_that_is_touched_but_still_meant_is_claimed_as_it_is_now(desk: RowsDesk, store: Store) -> None:
    await put(desk, (1, "open", NOON - HOUR))
    meanwhile = "update t set changed_at = '2026-06-01 11:30+00', due_at = '2026-01-01Z' where id = 1"
    (row,) = await Late(desk, **STALE).claim(store, meanwhile, "open")
    assert row.values["due_at"].year == 2026
    assert row.seen is not None
    assert row.seen.startswith("2026-06-01 11:30")


async def test_an_unchanged_row_is_not_claimed_on_a_snapshot_from_before_its_record(
    desk: RowsDesk, store: Store
) -> None:
    await put(desk, (1, "open"))
    meanwhile = (
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " values ('look', '1', 'resting', '2026-06-01 13:00Z', 1, 0, now(), now())"
    )
    assert await Late(desk).claim(store, meanwhile, "open") == []


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param("due_at = '2026-06-01 13:00Z'", id="its holder was alive and has renewed its lease"),
        pytest.param(
            "due_at = '2026-06-01 13:00Z', holder = gen_random_uuid(), term = nextval('trueup.row_terms')",
            id="another process has taken it over",
        ),
        pytest.param("state = 'quarantined', due_at = 'infinity', holder = null", id="it was quarantined"),
        pytest.param("started = true", id="its handler has begun, so that it is a suspect"),
    ],
)
async def test_a_row_whose_record_changes_between_looking_and_locking_is_not_taken_over(
    desk: RowsDesk, store: Store, clock: ManualClock, meanwhile: str
) -> None:
    await put(desk, (1, "open"), (2, "open"))
    await claimed(await desk.rows("open"))
    clock.advance(seconds=31)
    before = f"update trueup.rows set {meanwhile} where key = '1'"
    assert ids(await Late(desk).claim(store, before, "open", take=again)) == [2]


# -- again ----------------------------------------------------------------------------------------------------------------


async def test_rows_whose_time_has_come_again_are_claimed_longest_due_first(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, *((n, "open") for n in (1, 2, 3)))
    rows = await desk.rows("open")
    holder = uuid4()
    first = await claimed(rows, holder)
    await rows.settle(holder, first, [Rest(timedelta(minutes=m), succeeded=True) for m in (3, 1, 2)])
    assert await again(rows) == []
    clock.advance(minutes=2)
    first = await again(rows, holder)
    assert ids(first) == [2, 3]
    await rows.settle(holder, first, [Rest(HOUR, succeeded=True)] * 2)
    clock.advance(minutes=1)
    assert ids(await again(rows)) == [1]


async def test_rows_due_again_only_after_the_sweep_began_are_for_the_next(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    row = await one(rows)
    await settled(rows, row, Rest(HOUR, succeeded=True))
    clock.advance(hours=2)
    assert (await rows.claims.again(uuid4(), 10, NOON)).rows == []
    assert len((await rows.claims.again(uuid4(), 10, NOON + HOUR)).rows) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "x"),
        ("state", "open"),
        ("term", "1"),
        ("attempt", "2"),
        ("holder", "h"),
        ("reason", "r"),
        ("r", "r"),
        ("t", "t"),
    ],
)
async def test_a_condition_may_name_columns_that_are_called_like_trueups_own(
    desk: RowsDesk, clock: ManualClock, name: str, value: str
) -> None:
    await desk.run("drop table t")
    others = ", ".join(
        f"{c} text" for c in ("key", "state", "term", "attempt", "holder", "reason", "r", "t", "there", "now")
    )
    await desk.run(f"create table t (id int primary key, {others})")
    await desk.run("insert into t values (1, 'x', 'open', '1', '2', 'h', 'r', 'r', 't', 'there', 'now')")
    await desk.run("insert into t values (2, 'no', 'open', 'no', 'no', 'no', 'no', 'no', 'no', 'no', 'no')")
    await desk.run("update t set state = 'no' where id = 2 and %s = 'state'", name)
    rows = await desk.rows("open", spec={"where": f"{name} = '{value}'"})
    assert [listed[0] for listed in await rows.listed(10)] == ["1"]
    assert await rows.waiting(10) == 1
    row = await one(rows)
    assert row.values["key"] == "x"
    assert (await settled(rows, row, Rest(HOUR, succeeded=True))) == "changed"
    clock.advance(hours=2)
    (row,) = await again(rows)
    assert row.values["there"] == "there"
    async with desk.elsewhere() as connection:
        locked = Locked(rows)
        assert locked.values(row, await message.send(connection, *locked.locking(row))) == row.values
    await desk.run(f"update t set {name} = 'else'")
    clock.advance(hours=2)
    assert await rows.forget() == 1


async def test_known_rows_that_are_this_ones_business_no_more_are_forgotten(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, *((n, "open") for n in range(1, 7)))
    rows = await desk.rows("open")
    holder = uuid4()
    first = await claimed(rows, holder)
    rest = Rest(HOUR, succeeded=True)
    aside = SetAside("no", failure())
    await rows.settle(holder, first, [rest, rest, rest, aside, aside, aside])
    await desk.run("update t set state = 'done' where id in (1, 4)")
    await desk.run("delete from t where id in (2, 5)")
    assert await rows.forget() == 2  # those in quarantine; the others rest
    clock.advance(hours=1)
    assert await rows.forget() == 2
    assert set(await desk.known()) == {"3", "6"}
    assert (await desk.known())["6"]["state"] == "quarantined"


async def test_many_rows_in_quarantine_are_looked_at_a_part_at_a_time_and_all_in_the_end(desk: RowsDesk) -> None:
    await desk.run(FILL.format(2_500))
    await desk.plant("select n::text from generate_series(1, 2500) as n", state="quarantined")
    rows = await desk.rows("open")
    assert [await rows.forget() for _ in range(3)] == [0, 0, 0]
    await desk.run("update t set state = 'done' where id % 2 = 0")
    assert sum([await rows.forget() for _ in range(4)]) == 1250


async def test_rows_locked_by_somebody_keep_what_is_known_of_them(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    await settled(rows, await one(rows), Rest(HOUR, succeeded=True))
    await desk.run("update t set state = 'done'")
    clock.advance(hours=1)
    async with desk.elsewhere() as user:
        await user.execute("select from trueup.rows for update")
        assert await rows.forget() == 0
    assert await rows.forget() == 1


# -- crashes --------------------------------------------------------------------------------------------------------------


async def crash(rows: Rows, clock: ManualClock) -> ClaimedRow:
    """The process that holds them dies; another one takes one."""
    clock.advance(seconds=31)
    (row,) = [*await again(rows, most=1), *await again(rows, most=1, suspects=True)]
    return row


async def test_rows_of_a_dead_process_are_claimed_again_and_their_attempt_is_not_spent(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await put(desk, (1, "open"), (2, "open"))
    rows = await desk.rows("open")
    first = await claimed(rows)
    assert await again(rows) == []
    clock.advance(seconds=31)
    both = await again(rows)
    assert [(row.key, row.attempt, row.alone, row.spent) for row in both] == [(key, 1, False, False) for key in "12"]
    assert min(row.term for row in both) > max(row.term for row in first)
    assert {row["crashes"] for row in (await desk.known()).values()} == {1}


@pytest.mark.parametrize("why", ["its handler had begun", "it is not the first process that died with it"])
async def test_a_row_that_may_have_killed_its_process_is_claimed_alone(
    desk: RowsDesk, clock: ManualClock, why: str
) -> None:
    await put(desk, (1, "open"), (2, "open"))
    rows = await desk.rows("open")
    await claimed(rows)
    what = "started = true" if why.startswith("its") else "crashes = 1"
    await desk.run(f"update trueup.rows set {what} where key = '2'")
    clock.advance(seconds=31)
    assert [(row.key, row.alone) for row in await again(rows)] == [("1", False)]
    assert [(row.key, row.alone, row.attempt) for row in await again(rows, suspects=True)] == [("2", True, 1)]


async def test_a_row_that_kills_its_process_when_alone_runs_out_of_attempts(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    await claimed(rows)
    seen = [await crash(rows, clock) for _ in range(5)]
    assert [(row.attempt, row.spent) for row in seen] == [(1, False), (1, False), (2, False), (3, False), (3, True)]
    assert [row.alone for row in seen] == [False, True, True, True, True]
    assert (await desk.known())["1"]["crashes"] == 5


async def test_a_lease_that_expires_in_a_living_process_spends_an_attempt_without_a_crash(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    holder = uuid4()
    await claimed(rows, holder)
    for attempt in (2, 3, 3):
        await desk.run("update trueup.rows set started = true")
        clock.advance(seconds=31)
        (row,) = await again(rows, holder, suspects=True)
        assert (row.attempt, row.outlived) == (attempt, True)
    assert row.spent
    assert (await desk.known())["1"]["crashes"] == 0


async def test_a_row_that_was_alone_and_worked_is_one_among_others_again(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    await claimed(rows)
    row = await crash(rows, clock)
    await settled(rows, row, Rest(timedelta(), succeeded=True))
    (row,) = await again(rows)
    assert (row.attempt, row.alone) == (1, False)
    row = await crash(rows, clock)
    assert (row.attempt, row.spent) == (1, False)


async def test_giving_back_a_row_that_was_alone_keeps_it_known(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    await claimed(rows)
    await crash(rows, clock)
    row = await crash(rows, clock)
    assert row.alone
    assert await settled(rows, row, Release()) == "changed"
    assert (await desk.known())["1"]["attempt"] == 0
    clock.advance(microseconds=1)
    (row,) = await again(rows)
    assert row.attempt == 1


async def test_terms_only_grow_even_when_nothing_is_known_of_the_row_any_more(desk: RowsDesk) -> None:
    await put(desk, (1, "open"))
    rows = await desk.rows("open")
    terms = []
    for _ in range(5):
        row = await one(rows)
        terms.append(row.term)
        await settled(rows, row, Release())
        assert await desk.known() == {}
    assert terms == sorted(set(terms))


# -- what a claim writes ----------------------------------------------------------------------------------------------------


async def test_rows_left_behind_in_their_working_state_are_claimed_whatever_their_time(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await put(desk, (1, "open", None, NOON), (2, "working", None, NOON + HOUR), (3, "working", None, None))
    rows = await desk.rows("open", due_at="due_at", claimed_as="working")
    holder = uuid4()
    assert ids(await claimed(rows, holder)) == [1]
    assert await again(rows, holder) == []  # somebody may be at work on them
    clock.advance(seconds=29)
    assert await again(rows, holder) == []
    clock.advance(seconds=2)
    taken = await again(rows, holder)
    assert sorted(ids(taken)) == [1, 2, 3]
    assert [row.state for row in taken] == ["open"] * 3
    assert await settle_all(rows, taken, Change(To("done"), None)) == dict.fromkeys("123", "changed")


async def test_a_row_in_the_working_state_that_another_reconciler_holds_is_left_to_it(
    desk: RowsDesk, clock: ManualClock
) -> None:
    """One that was renamed, say, and whose old release is still at work."""
    await put(desk, (1, "open"))
    old = await desk.rows("open", claimed_as="working", name="old")
    new = await desk.rows("open", claimed_as="working")
    for name in ("old", "look"):
        await desk.run(
            "insert into trueup.reconcilers (name, place, declared, declared_at) values (%s, 't', '{}', now())", name
        )
    await one(old)
    assert await claimed(new) == []
    for _ in range(3):
        clock.advance(seconds=20)
        await desk.run(
            "update trueup.rows set due_at = %s where reconciler = 'old'", clock.now() + timedelta(seconds=30)
        )
        assert await again(new) == []
    clock.advance(seconds=31)
    assert ids(await again(new)) == [1]


async def test_a_row_is_taken_over_in_its_working_state_and_keeps_its_original_state(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await put(desk, (1, "paused", NOON - HOUR))
    rows = await desk.rows("open", "paused", claimed_as="working", **STALE)
    row = await one(rows)
    assert (row.values["state"], row.state) == ("working", "paused")
    assert await desk.scalar("select changed_at from t") == NOON
    row = await crash(rows, clock)
    assert (row.state, row.was_changed_at) == ("paused", "2026-06-01 11:00:00+00")
    assert await settled(rows, row, Change(Stay(), None)) == "changed"
    assert await desk.scalar("select state from t") == "paused"


async def test_a_shadow_writes_nothing_to_the_row(desk: RowsDesk) -> None:
    await put(desk, (1, "open", NOON - HOUR))
    before = await desk.run("select *, xmin::text from t")
    rows = await desk.rows("open", claimed_as="working", mode="shadow", **STALE)
    row = await one(rows)
    assert await settled(rows, row, Rest(HOUR, succeeded=True, proposed="To('done')")) == "changed"
    assert await desk.run("select *, xmin::text from t") == before
    assert (await desk.known())["1"]["proposed"] == "To('done')"


async def test_what_waits_is_what_a_sweep_would_claim(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, *((n, "open") for n in range(1, 6)), (6, "done"))
    rows = await desk.rows("open")
    holder = uuid4()
    first = await claimed(rows, holder, most=3)
    await rows.settle(holder, first[:2], [Rest(HOUR, succeeded=True), SetAside("no", failure())])
    assert await rows.waiting(100) == 2
    assert [listed[0] for listed in await rows.listed(100)] == ["4", "5"]
    assert await rows.waiting(1) == 1
    assert await rows.next_due_in() == 30.0
    clock.advance(hours=1)
    assert await rows.waiting(100) == 4
    assert [(listed[0], listed[3]) for listed in await rows.listed(100)] == [("1", 0), ("3", 1), ("4", 0), ("5", 0)]


async def test_what_is_listed_is_in_the_order_of_the_sweep(desk: RowsDesk) -> None:
    await put(desk, (1, "open", NOON - HOUR), (2, "open", None), (3, "open", NOON - 2 * HOUR))
    rows = await desk.rows("open", **STALE)
    assert [listed[0] for listed in await rows.listed(10)] == ["2", "3", "1"]


async def test_a_rate_holds_for_the_whole_fleet(desk: RowsDesk, clock: ManualClock, store: Store) -> None:
    await desk.run(FILL.format(100))
    one_, other = await desk.rows("open", rate="10/s", **STALE), await desk.rows("open", rate="10/s", **STALE)
    await store.lanes.register(["rows:look"])
    first = await one_.claims.fresh(uuid4(), 100, None)
    assert len(first.rows) == 3  # as far ahead as starts are given out
    assert [wait.total_seconds() for wait in first.waits] == [0.0, 0.1, 0.2]
    second = await other.claims.fresh(uuid4(), 100, None)
    assert (second.rows, second.ask_again_after) == ([], timedelta(milliseconds=50))
    clock.advance(seconds=1)
    assert len((await other.claims.fresh(uuid4(), 100, None)).rows) <= 10


async def test_somebody_else_claiming_at_the_same_pace_is_not_waited_for(desk: RowsDesk, store: Store) -> None:
    await desk.run(FILL.format(10))
    await store.lanes.register(["rows:look"])

    async def claim(side: Side) -> Any:
        rows = await desk.rows("open", rate="10/s", database=OneConnection(side.connection), **STALE)
        return await rows.claims.fresh(uuid4(), 100, None)

    first, second = await overlap(store, hold=claim, then=claim)
    assert len(first.rows) == 3
    assert (second.value.rows, second.value.ask_again_after) == ([], timedelta(milliseconds=50))
