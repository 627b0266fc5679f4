"""Moving and deleting by the database alone: what is old enough, a batch at a time, and nothing else."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.store.rows_desk import RowsDesk, desk_on
from tests.support.interleave import OneConnection, Side, interleave, overlap
from trueup.reconcile.counts import Counts
from trueup.store.rows.compose import steering
from trueup.store.rows.purges import Clearance, Purges
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

HOUR = timedelta(hours=1)
TABLE = """
create table t (id int primary key, state text not null, changed_at timestamptz, due_at timestamptz, note text, version int)
"""
TO: dict[str, dict[str, Any]] = {"move": {"to": "old"}, "delete": {}}
STALE: dict[str, Any] = {"stale_for": "1h", "spec": {"changed_at": "changed_at"}}


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        yield desk


async def put(desk: RowsDesk, *rows: tuple[Any, ...]) -> None:
    for row in rows:
        await desk.run("insert into t values (%s, %s, %s, %s)", *(*row, *[None] * (4 - len(row))))


async def ids(desk: RowsDesk, state: str = "open") -> list[int]:
    return [row["id"] for row in await desk.run("select id from t where state = %s order by id", state)]


async def refusal_of(purges: Purges) -> str | None:
    return (await purges.clearance()).refusal


async def finish(purges: Purges, state: str | None = "open") -> Counts:
    """As a sweep does it."""
    counts = Counts()
    while True:
        taken = await purges.take(state, counts)
        if taken.count < taken.asked:
            return counts


async def take(purges: Purges, state: str | None = "open", batches: int = 1) -> Counts:
    """What one message does."""
    counts = Counts()
    await purges.take(state, counts, batches)
    return counts


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_what_is_older_goes_and_what_is_as_old_or_of_unknown_age_stays(
    desk: RowsDesk, clock: ManualClock, verb: str
) -> None:
    await put(
        desk, (1, "open", NOON - HOUR), (2, "open", NOON - 2 * HOUR), (3, "open", None), (4, "done", NOON - 2 * HOUR)
    )
    purges = await desk.purges(verb, "open", **STALE, **TO[verb])
    assert await purges.waiting(10) == 1
    assert [listed[0] for listed in await purges.listed(10)] == ["2"]
    assert (await take(purges)).changed == 1
    assert await ids(desk) == [1, 3]
    assert await ids(desk, "old") == ([2] if verb == "move" else [])
    assert await ids(desk, "done") == [4]
    clock.advance(microseconds=1)
    assert (await take(purges)).changed == 1
    assert await ids(desk) == [3]


async def test_what_is_due_goes_at_its_very_moment(desk: RowsDesk) -> None:
    await put(
        desk, (1, "open", None, NOON), (2, "open", None, NOON + timedelta(microseconds=1)), (3, "open", None, None)
    )
    purges = await desk.purges("delete", "open", due_at="due_at")
    assert (await take(purges)).changed == 1
    assert await ids(desk) == [2, 3]


async def test_a_table_without_states_is_purged_by_time_alone(desk: RowsDesk) -> None:
    await put(desk, (1, "open", NOON - 2 * HOUR), (2, "done", NOON - 2 * HOUR), (3, "open", NOON))
    purges = await desk.purges("delete", state=None, **STALE)
    assert (await take(purges, None)).changed == 2


async def test_batches_go_oldest_first(desk: RowsDesk) -> None:
    await put(desk, *((n, "open", NOON - n * HOUR) for n in range(2, 9)))
    purges = await desk.purges("delete", "open", batch=3, **STALE)
    taken = await purges.take("open", Counts())
    assert (taken.asked, taken.count) == (3, 3)
    assert await ids(desk) == [2, 3, 4, 5]
    assert (await finish(purges)).changed == 4


async def test_a_move_sets_columns_the_time_and_the_version(desk: RowsDesk) -> None:
    await put(desk, (1, "open", NOON - 2 * HOUR))
    purges = await desk.purges(
        "move",
        "open",
        to="old",
        set={"note": "it's 100% {x}"},
        stale_for="1h",
        spec={"changed_at": "changed_at", "version": "version"},
    )
    assert (await take(purges)).changed == 1
    (row,) = await desk.run("select * from t")
    assert (row["state"], row["note"], row["changed_at"], row["version"]) == ("old", "it's 100% {x}", NOON, 1)


async def test_a_condition_narrows_it(desk: RowsDesk) -> None:
    await put(desk, (1, "open", NOON - 2 * HOUR), (2, "open", NOON - 2 * HOUR))
    spec = {"changed_at": "changed_at", "where": "id % 2 = 0 -- even"}
    purges = await desk.purges("delete", "open", stale_for="1h", spec=spec)
    assert await purges.waiting(10) == 1
    assert (await take(purges)).changed == 1
    assert await ids(desk) == [1]


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_rows_that_somebody_has_locked_are_left_and_not_waited_for(desk: RowsDesk, verb: str) -> None:
    await put(desk, *((n, "open", NOON - 2 * HOUR) for n in (1, 2, 3)))
    purges = await desk.purges(verb, "open", **STALE, **TO[verb])
    async with desk.elsewhere() as user:
        await user.execute("select from t where id = 2 for update")
        assert (await take(purges)).changed == 2
    assert await ids(desk) == [2]


async def test_a_referenced_row_can_be_moved_unless_that_changes_the_referenced_columns(
    desk: RowsDesk,
) -> None:
    await desk.run("create table part (t int references t)")
    await put(desk, *((n, "open", NOON - 2 * HOUR) for n in (1, 2)))
    purges = await desk.purges("move", "open", to="old", **STALE)
    async with desk.elsewhere() as user:
        await user.execute("insert into part values (1)")
        assert (await take(purges)).changed == 2
    await desk.run("update t set state = 'open', changed_at = '2026-01-01Z'")
    await desk.run("create unique index on t (state, id)")
    purges = await desk.purges("move", "open", to="old", **STALE)
    async with desk.elsewhere() as user:
        await user.execute("insert into part values (1)")
        assert (await take(purges)).changed == 1
    assert await ids(desk) == [1]


@pytest.mark.parametrize("verb", ["delete", "move"])
@pytest.mark.parametrize(
    "touch", ["update t set changed_at = '2026-06-01 12:00Z' where id = 1", "delete from t where id = 1"]
)
async def test_a_row_that_is_touched_between_looking_and_locking_stays(
    desk: RowsDesk, store: Store, verb: str, touch: str
) -> None:
    await desk.run(
        "create function gate() returns bool language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock_shared(7); return true; end $$"
    )
    await put(desk, (1, "open", NOON - 2 * HOUR), (2, "open", NOON - 2 * HOUR))
    spec = {"changed_at": "changed_at", "where": "gate()"}

    async def hold(side: Side) -> None:
        await side.connection.execute("select pg_advisory_xact_lock(7)")
        await side.connection.execute(touch.encode())

    async def then(side: Side) -> Counts:
        purges = await desk.purges(
            verb, "open", stale_for="1h", spec=spec, database=OneConnection(side.connection), **TO[verb]
        )
        return await take(purges)

    _, taken = await interleave(store, hold=hold, then=then)
    assert taken.value.changed == 1
    assert taken.value.lateness.count == 1
    assert 2 not in await ids(desk)


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_a_row_that_is_touched_and_still_old_is_counted_only_if_it_goes(
    desk: RowsDesk, store: Store, verb: str
) -> None:
    await desk.run(
        "create function gate() returns bool language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock_shared(7); return true; end $$"
    )
    await put(desk, (1, "open", NOON - 2 * HOUR), (2, "open", NOON - 2 * HOUR))
    spec = {"changed_at": "changed_at", "where": "gate()"}

    async def hold(side: Side) -> None:
        await side.connection.execute("select pg_advisory_xact_lock(7)")
        await side.connection.execute("update t set note = 'new' where id = 1")

    async def then(side: Side) -> Counts:
        purges = await desk.purges(
            verb, "open", stale_for="1h", spec=spec, database=OneConnection(side.connection), **TO[verb]
        )
        return await take(purges)

    _, ended = await interleave(store, hold=hold, then=then)
    taken = ended.value
    assert taken.changed == 2 - len(await ids(desk))
    assert taken.lateness.count == taken.changed


async def test_two_at_once_share_the_rows(desk: RowsDesk, store: Store) -> None:
    await put(desk, *((n, "open", NOON - 2 * HOUR) for n in range(1, 11)))

    async def five(side: Side) -> Counts:
        return await take(
            await desk.purges("delete", "open", batch=5, database=OneConnection(side.connection), **STALE)
        )

    first, second = await overlap(store, hold=five, then=five)
    assert (first.changed, second.value.changed) == (5, 5)
    assert await ids(desk) == []


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_lateness_is_measured_and_its_counts_add_up(desk: RowsDesk, verb: str) -> None:
    late = [0.5, 1.0, 5, 30, 60, 100, 1000, 5000, 90_000, 10**6]
    for n, seconds in enumerate(late):
        await put(desk, (n, "open", NOON - HOUR - timedelta(seconds=seconds)))
    await put(desk, (50, "open", "-infinity"))
    counts = await finish(await desk.purges(verb, "open", **STALE, **TO[verb]))
    assert counts.claimed == counts.changed == len(late) + 1
    assert sum(counts.lateness.counts) == counts.changed
    assert counts.lateness.counts == [2, 1, 2, 1, 0, 1, 1, 0, 3]
    assert counts.lateness.late == 6
    assert counts.lateness.worst_s > 10**10


async def test_lateness_falls_between_the_same_bounds_as_that_of_claims(desk: RowsDesk) -> None:
    seconds = [0.0, 0.5, 1.0, 1.5, 10.0, 60.0, 300.0, 86_400.0, 86_401.0]
    for n, each in enumerate(seconds):
        await put(desk, (n, "open", None, NOON - timedelta(seconds=each)))
    counts = await finish(await desk.purges("delete", "open", due_at="due_at"))
    expected = Counts()
    for each in seconds:
        expected.lateness.add(each)
    assert counts.lateness == expected.lateness


@pytest.mark.parametrize("verb", ["delete", "move"])
@pytest.mark.parametrize("span", [5, 3_000])
async def test_many_at_once_are_as_late_in_all_as_each_of_them(desk: RowsDesk, verb: str, span: int) -> None:
    """Alike, of which only the ends are looked at; and not alike, between different bounds."""
    late = [2_000 + span * n / 99 for n in range(100)]
    for n, each in enumerate(late):
        await put(desk, (n, "open", NOON - HOUR - timedelta(seconds=each)))
    counts = await finish(await desk.purges(verb, "open", **STALE, **TO[verb]))
    assert counts.lateness.count == counts.changed == 100
    assert counts.lateness.worst_s == pytest.approx(max(late))
    assert counts.lateness.average_s == pytest.approx(sum(late) / 100, rel=0.001)
    assert sum(1 for bucket in counts.lateness.counts if bucket) == (1 if span < 1_000 else 2)


@pytest.mark.parametrize("verb", ["delete", "move"])
@pytest.mark.parametrize("span", [5, 30_000])
async def test_rows_that_a_trigger_keeps_are_not_counted(desk: RowsDesk, verb: str, span: int) -> None:
    await desk.run(
        "create function keep() returns trigger language plpgsql as"
        " $$ begin if old.id % 4 = 0 then return null; end if; return coalesce(new, old); end $$"
    )
    await desk.run("create trigger keep before delete or update on t for each row execute function keep()")
    await put(desk, *((n, "open", NOON - 2 * HOUR - timedelta(seconds=span * n / 20)) for n in range(1, 21)))
    counts = await finish(await desk.purges(verb, "open", **STALE, **TO[verb]))
    assert (counts.claimed, counts.changed, counts.lateness.count) == (15, 15, 15)
    assert await ids(desk) == [4, 8, 12, 16, 20]


async def test_several_batches_in_a_message_are_as_many_transactions(desk: RowsDesk) -> None:
    await put(desk, *((n, "open", NOON - 2 * HOUR) for n in range(1, 26)))
    purges = await desk.purges("move", "open", batch=10, **STALE, to="old")
    assert (await take(purges, batches=4)).changed == 25
    assert [row["n"] for row in await desk.run("select count(*) as n from t group by xmin::text order by 1 desc")] == [
        10,
        10,
        5,
    ]


async def test_a_rate_holds_for_the_whole_fleet(desk: RowsDesk, clock: ManualClock) -> None:
    await put(desk, *((n, "open", NOON - 2 * HOUR) for n in range(1, 101)))
    one, other = [await desk.purges("delete", "open", rate="40/s", **STALE) for _ in range(2)]
    first = await one.take("open", Counts())
    assert first.count == first.asked == 11  # as far ahead as is given out
    second = await other.take("open", Counts())
    assert (second.count, second.ask_again_after) == (0, timedelta(milliseconds=25))
    clock.advance(seconds=1)
    total = first.count
    for purges in (one, other, one, other):
        total += (await take(purges)).changed
    assert total <= 40 + 11


async def test_it_refuses_to_begin_when_too_much_of_the_table_would_go(desk: RowsDesk) -> None:
    await put(desk, *((n, "open", NOON - 2 * HOUR) for n in range(1, 4)), *((n, "done", NOON) for n in range(4, 11)))
    assert await refusal_of(await desk.purges("delete", "open", max_fraction=0.3, **STALE)) is None
    refusal = await refusal_of(await desk.purges("delete", "open", max_fraction=0.29, **STALE))
    assert refusal == "3 of 10 rows would be changed, more than max_fraction=0.29 allows"
    assert await refusal_of(await desk.purges("delete", "open", **STALE)) is None


OPEN = "insert into t (id, state, changed_at) select n, 'open', '2026-06-01Z' from generate_series(1, 11000) as n"
DONE = "insert into t (id, state, changed_at) select -n, 'done', '2026-06-01Z' from generate_series(1, 25000) as n"
PARTITIONED = """
drop table t; create table t (id int primary key, state text, changed_at timestamptz) partition by range (id);
create table t1 partition of t for values from (minvalue) to (0); create table t2 partition of t for values from (0) to (maxvalue)
"""
WIDE = "alter table t alter note set default repeat('x', 400), alter note set storage plain, set (autovacuum_enabled = off)"
SINCE: dict[str, tuple[str, str, float, str | None]] = {
    "shrank": (f"{OPEN}; {DONE}; analyze t", "delete from t where state = 'done'", 0.9, None),
    "grew": ("analyze t", OPEN, 0.9, None),
    "never analysed, few rows on a page": (f"{WIDE}; {OPEN}", "select", 0.9, None),
    "truncated and refilled": (f"{DONE}; analyze t", f"truncate t; {OPEN}", 0.9, None),
    "partitioned": (f"{PARTITIONED}; {DONE}; analyze t", f"truncate t1; {OPEN}", 0.9, None),
    "with a condition": (f"{OPEN}; {DONE}; analyze t", "delete from t where state = 'done'", 0.45, "id % 2 = 0"),
    "small": (DONE, "truncate t; insert into t values (1, 'open', '2026-06-01Z')", 0.9, None),
}


@pytest.mark.parametrize("since", SINCE)
async def test_the_fraction_is_of_the_table_as_it_is_at_the_sweep(desk: RowsDesk, since: str) -> None:
    before, after, fraction, where = SINCE[since]
    await desk.run(before)
    spec = {"changed_at": "changed_at", "where": where}
    purges = await desk.purges("delete", "open", stale_for="1h", max_fraction=fraction, spec=spec)
    await desk.run(after)
    due, total = await purges.waiting(10**6), await desk.scalar("select count(*) from t")
    assert due > fraction * total
    refusal = f"{due:,} of {total:,} rows would be changed, more than max_fraction={fraction} allows"
    assert await refusal_of(purges) == refusal
    more = math.ceil(due / fraction) - total  # one less would not do
    await desk.run("insert into t (id, state) select -1000000 - n, 'kept' from generate_series(2, %s) as n", more)
    assert await refusal_of(purges) is not None
    await desk.run("insert into t (id, state) values (-1000000, 'kept')")
    assert await purges.clearance() == Clearance(due)


async def test_an_empty_table_has_nothing_to_refuse(desk: RowsDesk) -> None:
    await desk.run(f"{DONE}; analyze t")
    purges = await desk.purges("delete", "open", max_fraction=0.1, **STALE)
    await desk.run("truncate t")
    assert await purges.clearance() == Clearance(0)


async def test_a_table_that_cannot_be_counted_is_not_touched(desk: RowsDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(desk, (1, "open", NOON - 2 * HOUR), (2, "done", NOON))
    purges = await desk.purges("delete", "open", max_fraction=1, **STALE)
    monkeypatch.setattr(purges, "steer", steering(desk.store.statements, timedelta(milliseconds=50)))
    async with desk.elsewhere() as user:
        await user.execute("lock table t in access exclusive mode")
        assert "could not be counted for max_fraction=1: canceling statement" in (await refusal_of(purges) or "")
    assert await purges.clearance() == Clearance(1)


@pytest.mark.parametrize("verb", ["delete", "move"])
async def test_partitions_are_purged_together(desk: RowsDesk, verb: str) -> None:
    await desk.run("drop table t")
    await desk.run(
        "create table t (id int, part int, state text, changed_at timestamptz, primary key (id, part)) partition by list (part)"
    )
    for n in range(3):
        await desk.run(f"create table t{n} partition of t for values in ({n})")
    await desk.run("insert into t select n, n % 3, 'open', '2026-06-01Z' from generate_series(1, 30) as n")
    await desk.run("insert into t select n, n % 3, 'open', '2026-06-01 12:00Z' from generate_series(31, 40) as n")
    purges = await desk.purges(verb, "open", key=("id", "part"), batch=7, **STALE, **TO[verb])
    assert (await finish(purges)).changed == 30
    assert await ids(desk) == list(range(31, 41))


async def test_rows_leased_in_the_users_own_columns_are_left(desk: RowsDesk, clock: ManualClock) -> None:
    await desk.run("alter table t add owner text, add until timestamptz")
    await put(desk, (1, "open", NOON - 2 * HOUR), (2, "open", NOON - 2 * HOUR))
    await desk.run("update t set owner = 'them', until = %s where id = 1", NOON + HOUR)
    spec = {"changed_at": "changed_at", "lease_columns": ("owner", "until")}
    purges = await desk.purges("delete", "open", stale_for="1h", spec=spec)
    assert (await take(purges)).changed == 1
    assert await ids(desk) == [1]
    clock.advance(hours=1)
    assert (await take(purges)).changed == 1
