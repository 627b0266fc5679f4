"""A row whose trigger takes long, and one that PostgreSQL refuses, in the same batch: the search for the second one does not wait for the
first again and again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.work.rows.field import Field
from tests.work.rows.test_poison import mode_of
from trueup import Context, Retry, To

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ROWS = 120
# The slow row comes first, also in the order of texts. A sequence counts how often the slow row is waited for, whether or not the statement is rolled back.
TABLE = """
create table things (
  id int primary key, state text not null, owner text, until timestamptz, version int not null default 0
);
create sequence waits;
create function hinder() returns trigger language plpgsql as $$ begin
  if {at} and new.id = 8 then perform nextval('waits'), pg_sleep(1.2); end if;
  if {at} and new.id = 9 then raise 'not this one'; end if;
  return new;
end $$;
create trigger hinder before update on things for each row execute function hinder()
"""
AT = {"write": "new.state = 'done'", "claim": "new.state <> 'done' and (new.state = 'busy' or new.owner is not null)"}
CASES = [("write", mode) for mode in ("plain", "claimed_as", "lease_columns", "row_lock", "ctx.transaction")]
CASES += [("claim", mode) for mode in ("claimed_as", "lease_columns")]


@pytest.mark.parametrize(("at", "mode"), CASES)
async def test_the_slow_row_is_waited_for_a_few_times_only(live: Field, at: str, mode: str) -> None:
    await live.do("drop table things, log")
    await live.do(TABLE.format(at=AT[at]))
    await live.do(f"insert into things (id, state) select n, 'new' from generate_series(1, {ROWS}) as n")

    async def fix(row: Any, *, ctx: Context) -> To | None:
        if mode != "ctx.transaction":
            return To("done")
        async with ctx.transaction(To("done")):
            return None

    spec, options = mode_of(mode)
    table = live.app.table("things", key="id", state="state", **spec)
    retry = Retry(max_attempts=2, first="1h", jitter=False)
    live.fix(fix, table=table, stale_for=None, batch=ROWS, concurrency=ROWS, retry=retry, **options)
    counts = await live.sweep()
    assert (counts.changed, counts.retry) == (ROWS - 1, 1)
    assert await live.value("select last_value from waits") <= 5


PURGED = """
create table things (id int primary key, state text not null, changed_at timestamptz not null default '2020-01-01');
create sequence waits;
create function hinder() returns trigger language plpgsql as $$ begin
  if old.id = 8 then perform nextval('waits'), pg_sleep(1.2); end if;
  if old.id = 9 then raise 'not this one'; end if;
  return coalesce(new, old);
end $$;
create trigger hinder before update or delete on things for each row execute function hinder()
"""


@pytest.mark.parametrize("verb", ["move", "delete"])
async def test_a_purge_waits_for_the_slow_row_a_few_times_only(live: Field, verb: str) -> None:
    await live.do("drop table things, log")
    await live.do(PURGED)
    await live.do(f"insert into things (id, state) select n, 'new' from generate_series(1, {ROWS}) as n")
    table = live.app.table("things", key="id", state="state", changed_at="changed_at")
    given: dict[str, Any] = {"stale_for": "1h", "every": "1h", "name": "fix", "batch": ROWS}
    if verb == "move":
        table.move("new", to="done", **given)
    else:
        table.delete("new", **given)
    counts = await live.sweep()
    assert (counts.changed, counts.retry) == (ROWS - 1, 1)
    assert await live.value("select last_value from waits") <= 4
