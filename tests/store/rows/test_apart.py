"""Rows of which the database refuses some are settled one by one on the server: every other row is written by the same call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from tests.store.desk import draft
from tests.store.rows_desk import RowsDesk, claimed, desk_on, failure
from trueup.reconcile.decide import Change, Remove, RetryAfter
from trueup.reconcile.outcome import Delete, To
from trueup.store.store import Store

pytestmark = pytest.mark.asyncio

COUNT = 100
HOUR = timedelta(hours=1)
TABLE = """
create table t (id int primary key, state text not null, n int, note text, ref int, kept int not null default 0);
create table parents (id int primary key);
create table refers (id int references t);
alter table t add constraint small check (n < 1000), add foreign key (ref) references parents deferrable initially deferred;
insert into t select i, 'open' from generate_series(1, 100) as i;
insert into refers select id from t where id % 2 = 1
"""
SETS: dict[str, Callable[[int], bool]] = {
    "none": lambda n: False,
    "the first": lambda n: n == 1,
    "the last": lambda n: n == COUNT,
    "both ends": lambda n: n in (1, COUNT),
    "one in thirty": lambda n: n % 30 == 0,
    "a run": lambda n: 40 <= n < 60,
    "every second": lambda n: n % 2 == 1,
    "all": lambda n: True,
}
WAYS: dict[str, tuple[Any, str | None]] = {
    "check": (Change(To("done", n=5_000), None), "23514"),
    "deferred constraint": (Change(To("done", ref=1), None), "23503"),
    "cast": (Change(To("done", n="x"), None), "22P02"),
    "not null": (Change(To("done", kept=None), None), "23502"),
    "cannot be sent": (Change(To("done", note="\ud800"), None), None),
}


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        yield desk


@pytest.mark.parametrize(
    ("way", "poisoned"),
    [*(("check", each) for each in SETS), *((each, "one in thirty") for each in WAYS if each != "check")],
)
async def test_only_the_culprits_are_refused(desk: RowsDesk, way: str, poisoned: str) -> None:
    bad, state = WAYS[way]
    is_bad = SETS[poisoned]
    rows = await desk.rows("open")
    taken = await claimed(rows)
    moves = [bad if is_bad(int(row.key)) else Change(To("done", n=1), None) for row in taken]
    apart = await rows.settle_apart(taken[0].holder, taken, moves)
    culprits = {row.key for row in taken if is_bad(int(row.key))}
    assert apart.refused.keys() == culprits
    assert apart.done == {row.key: "changed" for row in taken if row.key not in culprits}
    assert not apart.untried
    assert await desk.scalar("select count(*) from t where state = 'done' and n = 1") == COUNT - len(culprits)
    assert {getattr(error, "sqlstate", None) for error in apart.refused.values()} == ({state} if culprits else set())
    assert (await desk.known()).keys() == culprits  # still held
    kept = await rows.settling.fetch(b"select statement from pg_prepared_statements where name like 'trueup%'")
    assert ["select" in text and "pg_class" in text for (text,) in kept] in ([], [True])  # only the table's fingerprint


# What raises for row 61, of 100 rows that are tried 32 at a time: by the number of rows written before it, PostgreSQL says which one it is.
COUNTED = """
create sequence tries;
create function tried() returns trigger language plpgsql as $$ begin perform nextval('tries'); return null; end $$;
create trigger tried before update on t for each statement execute function tried();
create function raises() returns trigger language plpgsql as $$ begin
  if new.id = 61 then raise exception 'not this one' using errcode = '{state}'; end if;
  return new;
end $$;
create function touches() returns trigger language plpgsql as $$ begin
  if pg_trigger_depth() = 1 then update t set kept = kept + 1 where state = 'kept'; end if;
  return null;
end $$;
"""
UNSAID = 3 + 1 + 7  # three parts more, the one that is refused, and its halves down to the row
RAISING: dict[str, tuple[str, int]] = {
    "before": ("create trigger raises before update on t for each row execute function raises()", 3 + 1 + 3),
    "after": ("create trigger raises after update on t for each row execute function raises()", UNSAID),
    "unique": ("create unique index on t (n) where n = 61; insert into t values (0, 'kept', 61)", 3 + 1 + 3),
    "others are written, too": (
        "create trigger raises before update on t for each row execute function raises(); "
        "create trigger touches after update on t for each row execute function touches(); "
        "insert into t select -i, 'kept' from generate_series(1, 5) as i",
        UNSAID + 200,  # each write of a row is one, too
    ),
}


@pytest.mark.parametrize("where", RAISING)
@pytest.mark.parametrize("state", ["P0001", "23505"])
async def test_a_culprit_is_found_with_few_tries(desk: RowsDesk, where: str, state: str) -> None:
    made, most = RAISING[where]
    await desk.run(COUNTED.format(state=state))
    await desk.run(made)
    rows = await desk.rows("open")
    taken = await claimed(rows)
    verdicts = [Change(To("done", n=int(row.key) if int(row.key) == 61 else None), None) for row in taken]
    await desk.run("select setval('tries', 1, false)")
    apart = await rows.settle_apart(taken[0].holder, taken, verdicts)
    assert {key: error.sqlstate for key, error in apart.refused.items()} == {  # type: ignore[attr-defined]
        "61": "23505" if where == "unique" else state
    }
    assert apart.done.keys() == {row.key for row in taken} - {"61"}
    assert await desk.scalar("select count(*) from t where state = 'done'") == COUNT - 1
    # A unique violation counts the row itself as written; one that a trigger makes up does not, which costs two tries more.
    assert await desk.scalar("select last_value from tries") <= most + 2 * (where == "before" and state == "23505")


async def test_the_error_is_what_psycopg_would_have_raised(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    taken = await claimed(rows)
    refused = (await rows.settle_apart(taken[0].holder, taken[:2], [WAYS["check"][0]] * 2)).refused
    with pytest.raises(psycopg.errors.CheckViolation) as raised:
        await rows.settle(taken[0].holder, taken[:1], [WAYS["check"][0]])
    error = refused[taken[0].key]
    assert isinstance(error, psycopg.errors.CheckViolation)
    for name in ("sqlstate", "message_primary", "constraint_name"):
        assert getattr(error.diag, name) == getattr(raised.value.diag, name)
    assert error.diag.message_detail is None  # it quotes the row


async def test_every_kind_of_verdict_is_judged_as_in_a_batch(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    taken = {row.key: row for row in await claimed(rows)}
    then = [draft(args='{"n": 1}')]
    moves = {
        "1": Remove(Delete()),  # referred to
        "2": Remove(Delete(then=then)),
        "3": WAYS["check"][0],
        "4": Change(To("done", then=then), None),
        "5": RetryAfter(HOUR, failure()),
        "6": Change(To("done"), None),
        "7": Change(To("done"), None),
        "8": Change(To("done"), None),
    }
    await desk.run("update t set note = 'theirs' where id = 6")
    taken["7"].term -= 1  # lost
    async with desk.elsewhere() as user:
        await user.execute("select from t where id = 8 for update")
        held = [taken[key] for key in moves]
        apart = await rows.settle_apart(held[0].holder, held, list(moves.values()))
    assert apart.refused.keys() == {"1", "3"}
    assert apart.done == {"2": "changed", "4": "changed", "5": "changed", "6": "contested", "8": "busy"}
    assert await desk.scalar("select count(*) from trueup.jobs") == 2


async def test_rows_that_are_not_reached_in_time_are_left_for_the_next_call(desk: RowsDesk) -> None:
    await desk.run(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.02); return new; end $$"
    )
    await desk.run("create trigger slow before update on t for each row execute function slow()")
    rows = await desk.rows("open")
    rows.search_for = 0.3
    taken = await claimed(rows)
    apart = await rows.settle_apart(taken[0].holder, taken, [Change(To("done"), None)] * COUNT)
    assert 0 < len(apart.done) < COUNT
    assert apart.done.keys() | apart.untried == {row.key for row in taken}
    assert await desk.scalar("select count(*) from t where state = 'done'") == len(apart.done)


async def test_a_job_that_is_refused_undoes_all_of_it(desk: RowsDesk) -> None:
    rows = await desk.rows("open")
    taken = (await claimed(rows))[:2]
    moves = [Change(To("done", then=[draft(args="{")]), None), Change(To("done"), None)]
    with pytest.raises(psycopg.Error):
        await rows.settle_apart(taken[0].holder, taken, moves)
    assert await desk.scalar("select count(*) from t where state = 'done'") == 0
