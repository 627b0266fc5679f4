"""What becomes of claimed rows: written by fence and compare-and-set, each row judged alone."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import pytest_asyncio
from psycopg.types.json import Json, Jsonb
from psycopg.types.range import Range

from tests.store.desk import draft
from tests.store.rows_desk import RowsDesk, again, claimed, desk_on, failure, one, settle_all, settled
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Release, Remove, Rest, RetryAfter, SetAside
from trueup.reconcile.outcome import Delete, Stay, To
from trueup.store.db.blocking import fetch_sync
from trueup.store.db.texts import text_of
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.testing.clock import NOON, ManualClock

pytestmark = pytest.mark.asyncio

TABLE = """
create table t (id int primary key, state text not null, changed_at timestamptz, version int, note text,
                owner text, until timestamptz)
"""
HOUR = timedelta(hours=1)
DONE = Change(To("done"), None)
REST = Rest(HOUR, succeeded=True)
CHANGED_AT: dict[str, Any] = {"spec": {"changed_at": "changed_at"}}
VERSION: dict[str, Any] = {"spec": {"version": "version"}}
LEASE: dict[str, Any] = {"spec": {"lease_columns": ("owner", "until")}}


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        await desk.run("insert into t values (1, 'open', '2026-06-01 11:00:00.123456+00', 7)")
        yield desk


async def row_of(desk: RowsDesk, id: int = 1) -> dict[str, Any]:
    (row,) = await desk.run("select * from t where id = %s", id)
    return row


# -- changed --------------------------------------------------------------------------------------------------------------


async def test_an_outcome_sets_time_and_version_of_the_change_and_deletes_the_record(
    desk: RowsDesk,
) -> None:
    rows = await desk.rows("open", spec={"changed_at": "changed_at", "version": "version"})
    row = await one(rows)
    assert await settled(rows, row, Change(To("done", note="x"), None)) == "changed"
    after = await row_of(desk)
    assert (after["state"], after["note"], after["changed_at"], after["version"]) == ("done", "x", NOON, 8)
    assert await desk.known() == {}


async def test_staying_refreshes_the_time_and_keeps_the_state(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **CHANGED_AT)
    assert await settled(rows, await one(rows), Change(Stay(note="x"), None)) == "changed"
    after = await row_of(desk)
    assert (after["state"], after["note"], after["changed_at"]) == ("open", "x", NOON)


async def test_stay_without_columns_works_on_a_table_with_neither_state_nor_time(
    desk: RowsDesk,
) -> None:
    rows = await desk.rows(state=None)
    before = await row_of(desk)
    assert await settled(rows, await one(rows), Change(Stay(), None)) == "changed"
    assert await row_of(desk) == before


async def test_an_outcome_may_set_the_time_and_version_itself(desk: RowsDesk) -> None:
    rows = await desk.rows("open", spec={"changed_at": "changed_at", "version": "version"})
    outcome = To("done", changed_at=NOON + HOUR, version=99)
    assert await settled(rows, await one(rows), Change(outcome, None)) == "changed"
    after = await row_of(desk)
    assert (after["changed_at"], after["version"]) == (NOON + HOUR, 99)


async def test_a_row_without_a_version_yet_gets_the_first(desk: RowsDesk) -> None:
    await desk.run("update t set version = null")
    rows = await desk.rows("open", **VERSION)
    assert await settled(rows, await one(rows), DONE) == "changed"
    assert (await row_of(desk))["version"] == 1


async def test_deleting_deletes(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **CHANGED_AT)
    assert await settled(rows, await one(rows), Remove(Delete())) == "changed"
    assert await desk.scalar("select count(*) from t") == 0
    assert await desk.known() == {}


async def test_a_row_that_would_be_claimed_at_once_rests_and_its_attempts_begin_anew(
    desk: RowsDesk, clock: ManualClock
) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    await settled(rows, row, RetryAfter(HOUR, failure()))
    clock.advance(hours=1)
    (row,) = await again(rows)
    assert row.attempt == 2
    assert await settled(rows, row, Change(Stay(note="x"), HOUR)) == "changed"
    known = (await desk.known())["1"]
    assert (known["state"], known["attempt"], known["errors"], known["due_at"]) == ("resting", 0, [], NOON + 2 * HOUR)


async def test_outcomes_of_different_kinds_are_settled_together(desk: RowsDesk) -> None:
    await desk.run("insert into t select n, 'open' from generate_series(2, 7) as n")
    rows = await desk.rows("open")
    taken = await claimed(rows)
    verdicts = [DONE, Change(To("done", note="x"), None), Change(Stay(note="y"), HOUR), Remove(Delete()), REST]
    verdicts += [SetAside("no", failure()), Release()]
    assert set((await rows.settle(taken[0].holder, taken, verdicts)).values()) == {"changed"}
    after = {row["id"]: (row["state"], row["note"]) for row in await desk.run("select * from t")}
    assert after == {
        1: ("done", None),
        2: ("done", "x"),
        3: ("open", "y"),
        5: ("open", None),
        6: ("open", None),
        7: ("open", None),
    }
    known = {key: row["state"] for key, row in (await desk.known()).items()}
    assert known == {"3": "resting", "5": "resting", "6": "quarantined"}


# -- conflict -------------------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("verdict", [Change(To("done", note="ours"), None), Remove(Delete())], ids=["change", "remove"])
@pytest.mark.parametrize(
    ("spec", "theirs"),
    [
        ({}, "update t set state = 'paused'"),
        ({"changed_at": "changed_at"}, "update t set state = 'paused'"),
        ({"changed_at": "changed_at"}, "update t set changed_at = changed_at + interval '1 us'"),
        ({"changed_at": "changed_at"}, "update t set changed_at = null"),
        ({"version": "version"}, "update t set version = version + 1"),
        ({"version": "version", "changed_at": "changed_at"}, "update t set version = version + 1"),
        ({}, "update t set note = 'theirs'"),
        ({}, "update t set id = id"),
        ({}, "delete from t"),
        ({"changed_at": "changed_at"}, "delete from t"),
        ({}, "update t set id = 2"),
    ],
)
async def test_a_row_that_another_session_changed_is_a_conflict_and_not_overwritten(
    desk: RowsDesk, spec: dict[str, Any], theirs: str, verdict: Any
) -> None:
    rows = await desk.rows("open", spec=spec)
    row = await one(rows)
    await desk.run(theirs)
    before = await desk.run("select *, xmin::text from t")
    still_chosen = await desk.run("select id from t where id = 1 and state = 'open'")
    assert await settled(rows, row, verdict) == ("contested" if still_chosen else "conflict")
    assert await desk.run("select *, xmin::text from t") == before
    assert set(await desk.known()) == ({"1"} if still_chosen else set())  # then it is still ours to settle


async def test_a_touch_is_no_conflict_where_only_the_version_counts(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **VERSION)
    row = await one(rows)
    await desk.run("update t set note = 'theirs'")
    assert await settled(rows, row, DONE) == "changed"
    assert (await row_of(desk))["note"] == "theirs"


async def test_a_row_that_was_only_locked_meanwhile_is_no_conflict(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    await desk.run("select from t for update")
    assert await settled(rows, row, DONE) == "changed"


async def test_one_conflict_among_others_is_theirs_alone(desk: RowsDesk) -> None:
    await desk.run("insert into t select n, 'open' from generate_series(2, 5) as n")
    rows = await desk.rows("open")
    taken = await claimed(rows)
    await desk.run("update t set note = 'theirs' where id = 3")
    done = await settle_all(rows, taken, Change(To("done"), None))
    assert done == {"1": "changed", "2": "changed", "3": "contested", "4": "changed", "5": "changed"}


# -- busy -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", ["for update", "for no key update", "for share"])
async def test_a_row_that_somebody_has_locked_is_busy_and_stays_ours(desk: RowsDesk, lock: str) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    async with desk.elsewhere() as user:
        await user.execute(f"select from t {lock}")
        assert await settled(rows, row, DONE) == "busy"
        assert await settled(rows, row, Remove(Delete())) == "busy"
    assert (await desk.known())["1"]["state"] == "held"
    assert await settled(rows, row, DONE) == "changed"


async def test_a_row_being_referenced_is_busy_only_for_a_delete(
    desk: RowsDesk,
) -> None:
    await desk.run("create table part (t int references t)")
    rows = await desk.rows("open")
    row = await one(rows)
    async with desk.elsewhere() as user:
        await user.execute("insert into part values (1)")
        assert await settled(rows, row, Remove(Delete())) == "busy"
        assert await settled(rows, row, DONE) == "changed"


async def test_a_change_to_what_others_may_refer_to_does_not_wait_for_those_who_do(desk: RowsDesk) -> None:
    await desk.run("create unique index on t (id, state)")
    await desk.run("create table part (t int references t)")
    rows = await desk.rows("open")
    row = await one(rows)
    async with desk.elsewhere() as user:
        await user.execute("insert into part values (1)")
        assert await settled(rows, row, DONE) == "busy"  # and not, after a timeout, an error
    assert await settled(rows, row, DONE) == "changed"


async def test_resting_does_not_need_the_users_row(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    async with desk.elsewhere() as user:
        await user.execute("update t set note = 'theirs'")
        assert await settled(rows, row, REST) == "changed"


# -- lost -----------------------------------------------------------------------------------------------------------------

EVERY_VERDICT = [DONE, Remove(Delete()), REST, RetryAfter(HOUR, failure()), SetAside("no", failure()), Release()]


@pytest.mark.parametrize("verdict", EVERY_VERDICT, ids=lambda verdict: type(verdict).__name__)
@pytest.mark.parametrize("claimed_as", [None, "working"])
class TestLost:
    async def check(self, desk: RowsDesk, rows: Rows, row: ClaimedRow, verdict: Any) -> None:
        before = await desk.run("select *, xmin::text from t"), await desk.known()
        assert await settled(rows, row, verdict) is None
        assert (await desk.run("select *, xmin::text from t"), await desk.known()) == before

    async def test_nothing_is_written_after_the_lease_has_passed(
        self, desk: RowsDesk, clock: ManualClock, verdict: Any, claimed_as: str | None
    ) -> None:
        rows = await desk.rows("open", claimed_as=claimed_as)
        row = await one(rows)
        clock.advance(seconds=30)
        await self.check(desk, rows, row, verdict)

    async def test_nothing_is_written_by_another_holder(
        self, desk: RowsDesk, verdict: Any, claimed_as: str | None
    ) -> None:
        rows = await desk.rows("open", claimed_as=claimed_as)
        row = await one(rows)
        row.holder = uuid4()
        await self.check(desk, rows, row, verdict)

    async def test_nothing_is_written_under_an_older_term_of_the_same_holder(
        self, desk: RowsDesk, clock: ManualClock, verdict: Any, claimed_as: str | None
    ) -> None:
        rows, holder = await desk.rows("open", claimed_as=claimed_as), uuid4()
        old = await one(rows, holder)
        clock.advance(seconds=30)
        (new,) = await again(rows, holder)
        await self.check(desk, rows, old, verdict)
        assert await settled(rows, new, verdict) == "changed"

    async def test_nothing_is_written_under_a_term_from_before_the_row_was_forgotten(
        self, desk: RowsDesk, verdict: Any, claimed_as: str | None
    ) -> None:
        rows, holder = await desk.rows("open", claimed_as=claimed_as), uuid4()
        old = await one(rows, holder)
        assert await settled(rows, old, Release()) == "changed"
        await self.check(desk, rows, old, verdict)
        await one(rows, holder)
        await self.check(desk, rows, old, verdict)


# -- values -----------------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


BERLIN = timezone(timedelta(hours=2))
VALUES: list[tuple[str, Any, Any]] = [
    ("jsonb", {"a": [1, None, "x"], "q": 'it\'s "so" \\ {}'}, None),
    ("jsonb", [1, {"a": 2}], None),
    ("jsonb", [], None),
    ("jsonb", "text", None),
    ("jsonb", 5, None),
    ("jsonb", True, None),
    ("jsonb", Jsonb({"a": 1}), {"a": 1}),
    ("json", Json([1, 2]), [1, 2]),
    ("json", {"a": "ä\U0001f600"}, None),
    ("int[]", [1, 2, None], None),
    ("int[]", [], None),
    ("text[]", ["a", "NULL", "{}", 'q"', "\\", "", None, "a,b"], None),
    ("int[][]", [[1, 2], [3, 4]], None),
    ("bytea[]", [b"\x00\xff\\", b"'"], None),
    ("timestamptz[]", [NOON], None),
    ("bytea", b"\x00\xff\\'", None),
    ("bytea", bytearray(b"ab"), b"ab"),
    ("numeric(78,0)", Decimal(10**77 + 1), None),
    ("numeric(78,0)", 10**77 + 1, Decimal(10**77 + 1)),
    ("numeric", Decimal("1.10"), None),
    ("numeric", 1.5, Decimal("1.5")),
    ("float8", 0.1, None),
    ("float8", float("inf"), None),
    ("bigint", -(2**63), None),
    ("smallint", 7, None),
    ("interval", timedelta(days=3, seconds=-1, microseconds=5), None),
    ("boolean", True, None),
    ("boolean", False, None),
    ("date", date(2026, 2, 28), None),
    ("timestamptz", NOON, None),
    ("timestamptz", datetime(2026, 6, 1, 14, tzinfo=BERLIN), NOON),
    ("timestamp", datetime(2026, 6, 1, 14, tzinfo=BERLIN), NOON.replace(tzinfo=None)),
    ("timestamp", datetime(2026, 6, 1, 14), datetime(2026, 6, 1, 14)),  # noqa: DTZ001 - as the column: without a zone
    ("inet", ipaddress.ip_address("10.0.0.1"), None),
    ("inet", "10.0.0.1", ipaddress.ip_address("10.0.0.1")),
    ("cidr", ipaddress.ip_network("10.0.0.0/8"), None),
    ("uuid", UUID(int=5), None),
    ("colour", "red", None),
    ("colour", Colour.RED, "red"),
    ("text", "NULL", None),
    ("text", "{}", None),
    ("text", "", None),
    ("text", "a%s %(b)s {c} 'd' \"e\" \\f ä\n\t", None),
    ("varchar(3)", "abc", None),
    ("char(3)", "ab", "ab "),
    ("small_text", "abc", None),
    ("bit(3)", "101", None),
    ("int4range", Range(1, 5), None),
    ("point", "(1,2)", None),
]


@pytest.mark.parametrize(("kind", "value", "expected"), VALUES, ids=lambda each: str(each)[:30])
async def test_a_column_of_any_common_type_is_set_to_the_value_that_is_read_back(
    desk: RowsDesk, kind: str, value: Any, expected: Any
) -> None:
    await desk.run("create type colour as enum ('red', 'green')")
    await desk.run("create domain small_text as varchar(3) check (value <> 'no')")
    await desk.run(f"alter table t add x {kind}")
    await desk.run("insert into t (id, state) values (2, 'open')")
    rows = await desk.rows("open")
    taken = await claimed(rows)
    verdicts = [Change(To("done", x=value), None), Change(To("done", x=None), None)]
    assert await rows.settle(taken[0].holder, taken, verdicts) == {"1": "changed", "2": "changed"}
    assert (await row_of(desk))["x"] == (value if expected is None else expected)
    assert (await row_of(desk, 2))["x"] is None


async def test_not_a_number_is_stored_as_such(desk: RowsDesk) -> None:
    await desk.run("alter table t add a numeric, add b float8")
    rows = await desk.rows("open")
    outcome = To("done", a=Decimal("NaN"), b=float("nan"))
    assert await settled(rows, await one(rows), Change(outcome, None)) == "changed"
    assert await desk.scalar("select a = 'NaN' and b = 'NaN' from t")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("varchar(3)", "abcd"),
        ("char(3)", "abcd"),
        ("small_text", "abcd"),
        ("small_text", "no"),
        ("numeric(3,0)", 1000),
        ("smallint", 70_000),
        ("int", "x"),
        ("text", "a\0b"),
        ("text", "\ud800"),
        ("jsonb", {"a": "\0"}),
        ("jsonb", {"a": float("nan")}),
        ("jsonb", {"a": object()}),
        ("text", object()),
        ("text not null default ''", None),
    ],
    ids=lambda each: ascii(each)[:30].split(" at 0x")[0],
)
async def test_a_value_that_does_not_fit_is_an_error_that_changes_nothing(
    desk: RowsDesk, kind: str, value: Any
) -> None:
    await desk.run("create domain small_text as varchar(3) check (value <> 'no')")
    await desk.run(f"alter table t add x {kind}")
    await desk.run("insert into t (id, state) values (2, 'open')")
    rows = await desk.rows("open")
    taken = await claimed(rows)
    verdicts = [Change(To("done", x=value), None), Change(To("done", x="1"), None)]
    with pytest.raises((psycopg.Error, TypeError, ValueError)):
        await rows.settle(taken[0].holder, taken, verdicts)
    assert await desk.scalar("select count(*) from t where state = 'open'") == 2
    assert await settled(rows, taken[1], DONE) == "changed"  # the others one by one
    assert await settled(rows, taken[0], RetryAfter(HOUR, failure())) == "changed"


async def test_an_enum_is_stored_as_its_value_whoever_gives_it(desk: RowsDesk) -> None:
    found = (await desk.rows("open")).found
    assert text_of(Colour.RED, found.columns["note"]) == "red"


# -- then -------------------------------------------------------------------------------------------------------------------


async def jobs(desk: RowsDesk) -> list[int]:
    return [row["args"]["n"] for row in await desk.run("select args from trueup.jobs order by id")]


def then(n: int) -> Any:
    return [draft(args=f'{{"n": {n}}}')]


async def test_jobs_that_follow_are_there_when_the_row_has_changed_and_only_then(desk: RowsDesk) -> None:
    await desk.run("insert into t select n, 'open' from generate_series(2, 5) as n")
    rows = await desk.rows("open")
    taken = await claimed(rows)
    await desk.run("update t set note = 'theirs' where id = 2")
    taken[2].term -= 1  # lost
    verdicts = [Change(To("done", then=then(n)), None) for n in (1, 2, 3, 4)] + [Remove(Delete(then=then(5)))]
    async with desk.elsewhere() as user:
        await user.execute("select from t where id = 4 for update")
        done = await rows.settle(taken[0].holder, taken, verdicts)
    assert done == {"1": "changed", "2": "contested", "4": "busy", "5": "changed"}
    assert await jobs(desk) == [1, 5]


async def test_when_a_job_that_follows_is_refused_the_row_stays_as_it_was(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    bad = draft(args="{", max_attempts=3)
    with pytest.raises(psycopg.Error):
        await settled(rows, row, Change(To("done", then=[bad]), None))
    assert (await row_of(desk))["state"] == "open"
    assert (await desk.known())["1"]["state"] == "held"


async def test_in_the_callers_transaction_all_is_done_or_nothing(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    async with desk.elsewhere() as handler:
        await handler.execute("insert into t values (9, 'theirs')")
        done = await rows.settle(row.holder, [row], [Change(To("done", then=then(1)), None)], handler)
        assert done == {"1": "changed"}
    assert (await row_of(desk))["state"] == "open"
    assert await jobs(desk) == []
    assert await settled(rows, row, DONE) == "changed"


# -- quiet verdicts -----------------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("claimed_as", [None, "working"])
@pytest.mark.parametrize(
    ("verdict", "state", "attempt", "errors"),
    [
        (Rest(HOUR, succeeded=True), "resting", 0, 0),
        (Rest(HOUR, succeeded=False), "resting", 1, 1),
        (RetryAfter(HOUR, failure()), "resting", 2, 2),
        (RetryAfter(HOUR, failure(), spend=False), "resting", 1, 2),
        (SetAside("no", failure()), "quarantined", 2, 2),
        (Release(), "resting", 1, 1),
    ],
    ids=["unchanged", "again", "failed", "not its fault", "set aside", "given back"],
)
async def test_attempts_at_the_second_try(
    desk: RowsDesk,
    clock: ManualClock,
    claimed_as: str | None,
    verdict: Any,
    state: str,
    attempt: int,
    errors: int,
) -> None:
    rows = await desk.rows("open", claimed_as=claimed_as)
    await settled(rows, await one(rows), RetryAfter(HOUR, failure()))
    clock.advance(hours=1)
    (row,) = await again(rows)
    assert row.attempt == 2
    assert await settled(rows, row, verdict) == "changed"
    known = (await desk.known())["1"]
    assert (known["state"], known["attempt"], len(known["errors"]), known["holder"]) == (state, attempt, errors, None)
    assert (await row_of(desk))["state"] == "open"


async def test_a_row_given_back_at_its_first_try_is_as_if_never_claimed(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    assert await settled(rows, await one(rows), Release()) == "changed"
    assert await desk.known() == {}
    assert (await one(rows)).attempt == 1


async def test_of_many_errors_the_first_and_the_last_are_kept(desk: RowsDesk, clock: ManualClock) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    for n in range(40):
        assert await settled(rows, row, RetryAfter(timedelta(), failure(f"error {n}"), spend=False)) == "changed"
        (row,) = await again(rows)
    messages = [error["message"] for error in (await desk.known())["1"]["errors"]]
    assert len(messages) < 40
    assert (messages[0], messages[-1]) == ("error 0", "error 39")


async def test_attempts_can_be_given_back_while_the_row_rests_and_not_under_another_term(
    desk: RowsDesk, clock: ManualClock
) -> None:
    rows = await desk.rows("open")
    row = await one(rows)
    await settled(rows, row, RetryAfter(HOUR, failure()))
    await rows.refund([row])
    assert (await desk.known())["1"]["attempt"] == 0
    clock.advance(hours=1)
    (later,) = await again(rows)
    await rows.refund([row])
    assert (await desk.known())["1"]["attempt"] == 1
    await settled(rows, later, RetryAfter(HOUR, failure()))
    await rows.refund([row])
    assert (await desk.known())["1"]["attempt"] == 1


# -- claimed_as ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [REST, RetryAfter(HOUR, failure()), SetAside("no", failure()), Release()])
async def test_a_row_put_back_has_its_state_and_time_exactly_as_before_and_a_new_version(
    desk: RowsDesk, verdict: Any
) -> None:
    rows = await desk.rows("open", claimed_as="working", spec={"changed_at": "changed_at", "version": "version"})
    before = await row_of(desk)
    row = await one(rows)
    assert (await row_of(desk))["state"] == "working"
    assert (await row_of(desk))["version"] == 8
    assert await settled(rows, row, verdict) == "changed"
    assert await row_of(desk) == {**before, "version": 9}


@pytest.mark.parametrize(
    "theirs",
    [
        "update t set state = 'paused'",
        "update t set changed_at = '2026-01-01Z'",
        "update t set state = 'open', changed_at = '2026-01-01Z'",
    ],
)
async def test_what_the_user_did_to_a_row_meanwhile_stays_when_it_is_put_back(desk: RowsDesk, theirs: str) -> None:
    rows = await desk.rows("open", claimed_as="working", **CHANGED_AT)
    row = await one(rows)
    await desk.run(theirs)
    before = await row_of(desk)
    assert await settled(rows, row, REST) == "changed"
    assert await row_of(desk) == before


async def test_a_marked_row_that_somebody_has_locked_is_busy_to_be_put_back(desk: RowsDesk) -> None:
    rows = await desk.rows("open", claimed_as="working")
    row = await one(rows)
    async with desk.elsewhere() as user:
        await user.execute("select from t for update")
        assert await settled(rows, row, REST) == "busy"
    assert await settled(rows, row, REST) == "changed"
    assert (await row_of(desk))["state"] == "open"


async def test_a_marked_row_that_is_gone_is_settled_all_the_same(desk: RowsDesk) -> None:
    rows = await desk.rows("open", claimed_as="working")
    row = await one(rows)
    await desk.run("delete from t")
    assert await settled(rows, row, Release()) == "changed"
    assert await desk.known() == {}


# -- the user's own lease columns -----------------------------------------------------------------------------------------------


async def test_the_users_own_columns_say_who_holds_the_row_and_until_when(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **LEASE)
    row = await one(rows)
    after = await row_of(desk)
    assert (after["owner"], after["until"]) == (f"host:1/{row.term}", NOON + timedelta(seconds=30))
    assert (row.values["owner"], row.values["until"]) == (after["owner"], after["until"])


async def test_rows_leased_by_somebody_else_are_left_and_expired_ones_are_taken_at_once(
    desk: RowsDesk, clock: ManualClock
) -> None:
    await desk.run("update t set owner = 'them', until = %s", NOON + HOUR)
    await desk.run("insert into t (id, state, owner, until) values (2, 'open', 'dead', %s)", NOON)
    rows = await desk.rows("open", **LEASE)
    assert await rows.waiting(10) == 1
    assert (await one(rows)).key == "2"
    clock.advance(hours=1)
    assert [row.key for row in await claimed(rows)] == ["1"]


@pytest.mark.matrix
@pytest.mark.parametrize("verdict", EVERY_VERDICT, ids=lambda verdict: type(verdict).__name__)
@pytest.mark.parametrize("claimed_as", [None, "working"])
async def test_the_users_own_columns_are_cleared_whatever_becomes_of_the_row(
    desk: RowsDesk, verdict: Any, claimed_as: str | None
) -> None:
    rows = await desk.rows("open", claimed_as=claimed_as, **LEASE)
    assert await settled(rows, await one(rows), verdict) == "changed"
    for row in await desk.run("select * from t"):
        assert (row["owner"], row["until"]) == (None, None)
        assert row["state"] in ("open", "done")


async def test_the_users_own_columns_are_cleared_after_a_conflict_too(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **LEASE)
    row = await one(rows)
    await desk.run("update t set state = 'paused'")
    assert await settled(rows, row, DONE) == "conflict"
    after = await row_of(desk)
    assert (after["state"], after["owner"], after["until"]) == ("paused", None, None)


@pytest.mark.parametrize(
    "theirs",
    [
        "update t set owner = null, until = null",
        "update t set owner = 'them'",
        "update t set until = until - interval '1 h'",
    ],
)
@pytest.mark.parametrize("verdict", [DONE, Remove(Delete())], ids=["change", "remove"])
async def test_a_lease_that_the_user_has_taken_back_is_a_conflict(desk: RowsDesk, theirs: str, verdict: Any) -> None:
    rows = await desk.rows("open", **LEASE)
    row = await one(rows)
    await desk.run(theirs)
    before = await row_of(desk)
    assert await settled(rows, row, verdict) == "contested"
    assert await row_of(desk) == before


async def test_a_lease_that_the_user_took_back_is_kept_when_the_row_is_released(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **LEASE)
    row = await one(rows)
    await desk.run("update t set owner = 'them'")
    before = await row_of(desk)
    assert await settled(rows, row, REST) == "changed"
    assert await row_of(desk) == before


# -- keeping --------------------------------------------------------------------------------------------------------------------


def renew(desk: RowsDesk, rows: Rows, *held: ClaimedRow) -> dict[str, Any]:
    """As the keeper sends it."""
    query, params = rows.renewal(held[0].holder, held)
    with desk.store.connect_sync("test") as connection:
        return {row[0]: row for row in fetch_sync(connection, query, params)}


@pytest.mark.parametrize("options", [{}, LEASE], ids=["plain", "own columns"])
async def test_a_lease_is_renewed_while_it_has_not_passed(
    desk: RowsDesk, clock: ManualClock, options: dict[str, Any]
) -> None:
    rows = await desk.rows("open", **options)
    row = await one(rows)
    clock.advance(seconds=29)
    assert set(renew(desk, rows, row)) == {"1"}
    assert (await desk.known())["1"]["due_at"] == NOON + timedelta(seconds=59)
    if options:
        assert (await row_of(desk))["until"] == NOON + timedelta(seconds=59)
    clock.advance(seconds=29)
    assert await settled(rows, row, DONE) == "changed"


@pytest.mark.parametrize("options", [{}, LEASE], ids=["plain", "own columns"])
async def test_a_lease_that_has_passed_or_is_somebody_elses_is_not_renewed(
    desk: RowsDesk, clock: ManualClock, options: dict[str, Any]
) -> None:
    rows = await desk.rows("open", **options)
    row = await one(rows)
    other, row.holder = row.holder, uuid4()
    assert renew(desk, rows, row) == {}
    row.holder = other
    clock.advance(seconds=30)
    assert renew(desk, rows, row) == {}
    (new,) = await again(rows, row.holder)
    assert set(renew(desk, rows, new)) == {"1"}
    clock.advance(seconds=5)
    before = await desk.known()
    assert renew(desk, rows, row) == {}
    assert await desk.known() == before, "nor does it make the newer claim last longer"


async def test_a_lease_in_the_users_own_columns_is_not_renewed_over_somebody_elses(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **LEASE)
    row = await one(rows)
    await desk.run("update t set owner = 'them'")
    assert renew(desk, rows, row) == {}
    assert (await row_of(desk))["owner"] == "them"


async def test_a_row_that_is_locked_when_its_lease_is_renewed_keeps_the_lease_that_is_ours(
    desk: RowsDesk, clock: ManualClock
) -> None:
    rows = await desk.rows("open", **LEASE)
    row = await one(rows)
    async with desk.elsewhere() as user:
        await user.execute("select from t for update")
        clock.advance(seconds=20)
        assert renew(desk, rows, row)["1"][-1] == "renewed"
        assert (await desk.known())["1"]["due_at"] == clock.now() + timedelta(seconds=30)
    assert (await row_of(desk))["until"] == clock.now() + timedelta(seconds=10)
    assert renew(desk, rows, row)["1"][-1] == "renewed"
    assert (await row_of(desk))["until"] == clock.now() + timedelta(seconds=30)


async def test_a_trigger_that_touches_the_row_at_every_renewal_makes_no_conflict(desk: RowsDesk) -> None:
    await desk.run(
        "create function touch() returns trigger language plpgsql as"
        " $$ begin new.version := old.version + 1; new.changed_at := clock_timestamp(); return new; end $$"
    )
    await desk.run("create trigger touch before update on t for each row execute function touch()")
    for spec in ({"changed_at": "changed_at"}, {"version": "version"}):
        rows = await desk.rows("open", spec={**spec, **LEASE["spec"]})
        row = await one(rows)
        _, row.seen, answer = renew(desk, rows, row)["1"]
        assert answer == "renewed"
        assert await settled(rows, row, Change(Stay(), None)) == "changed"
