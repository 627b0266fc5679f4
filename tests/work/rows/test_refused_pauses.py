"""Circuit breakers and rows that PostgreSQL refuses: a refusal that every row meets opens the breaker, one that few rows meet does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.work.rows.field import NAME, Field
from tests.work.rows.test_poison import mode_of
from trueup import App, Context, Retry, Row, To
from trueup.events import ReconcilerPaused, ReconcilerResumed, RowQuarantined
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

ROWS, BATCH = 60, 20
RETRY = Retry(max_attempts=3, first="1s", jitter=False)
TABLE = """
create table things (
  id int primary key, state text not null, changed_at timestamptz not null default now() - interval '10 years', kind text not null default 'a',
  owner text, until timestamptz, version int not null default 0
);
create table refused (at text, which text);
create function hinder() returns trigger language plpgsql as $$ begin
  if exists (select from refused where new.state = at or at = 'busy' and new.owner is not null and old.owner is null) then
    if exists (select from refused where 'all' = which or new.kind = which) then {does} end if;
  end if;
  return new;
end $$;
create trigger hinder before update on things for each row execute function hinder()
"""
DOES = {"raises": "raise 'deployed yesterday';", "keeps": "return old;"}
BATCHED = [("done", mode) for mode in ("plain", "claimed_as", "lease_columns")]
OUTCOMES = [
    *BATCHED,
    ("done", "row_lock"),
    ("done", "ctx.transaction"),
]  # in a transaction of their own, refusals are failures of the handler
CLAIMS = [("busy", mode) for mode in ("claimed_as", "lease_columns")]


class Fixes:
    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.calls: list[int] = []

    async def handler(self, row: Row, *, ctx: Context) -> To | None:
        self.calls.append(row.id)
        if self.mode != "ctx.transaction":
            return To("done")
        async with ctx.transaction(To("done")):
            return None

    async def declare(
        self, field: Field, does: str = "raises", rows: int = ROWS, *, fill: bool = True, **options: Any
    ) -> None:
        if fill:
            await field.do("drop table things, log")
            await field.do(TABLE.format(does=DOES[does]))
            await field.do("insert into things (id, state) select n, 'new' from generate_series(1, %s) as n", (rows,))
        spec, mode = mode_of(self.mode)
        table = field.app.table("things", key="id", state="state", changed_at="changed_at", **spec)
        given = {"pause_after": 3, "concurrency": 4, "batch": BATCH, "retry": RETRY, **mode, **options}
        field.fix(self.handler, table=table, **given)


async def attempts(field: Field) -> list[int]:
    rows = await field.ask("select distinct attempt from trueup.rows order by attempt")
    return [row["attempt"] for row in rows]


@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize(
    ("at", "mode", "does"), [*((*case, "raises") for case in [*OUTCOMES, *CLAIMS]), ("done", "plain", "keeps")]
)
async def test_a_refusal_that_every_row_meets_pauses_it_and_spends_no_attempt(
    field: Field, clock: ManualClock, at: str, mode: str, does: str, concurrency: int
) -> None:
    fixes = Fixes(mode)
    await fixes.declare(field, does, concurrency=concurrency)
    await field.do("insert into refused values (%s, 'all')", (at,))
    counts = await field.sweep()
    assert (counts.changed, counts.quarantined) == (0, 0)
    assert len(fixes.calls) <= BATCH + concurrency
    (paused,) = field.events.of(ReconcilerPaused)
    assert paused.reason.startswith(("had row after row refused by PostgreSQL", "failed over and over"))
    for seconds in (31, 61, 121, 241):  # one row at a time, ever more rarely
        clock.advance(seconds=seconds)
        assert (await field.sweep()).claimed == 1
    assert not field.events.of(RowQuarantined)
    assert not field.events.of(ReconcilerResumed)
    assert await attempts(field) == [0]
    await field.do("delete from refused")
    clock.advance(seconds=601)
    for _ in range(3):
        await field.sweep()
        clock.advance(seconds=60)
    assert await field.states() == {"done": ROWS}
    assert len(field.events.of(ReconcilerResumed)) == 1


@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize(("at", "mode"), [*BATCHED, *CLAIMS])
async def test_a_few_rows_that_are_refused_each_time_do_not_keep_the_others_waiting(
    field: Field, clock: ManualClock, at: str, mode: str, concurrency: int
) -> None:
    fixes = Fixes(mode)
    await fixes.declare(field, concurrency=concurrency)
    await field.do("update things set kind = 'bad' where id % 5 = 0")
    await field.do("insert into refused values (%s, 'bad')", (at,))
    assert (await field.sweep()).changed == ROWS * 4 // 5
    for _ in range(3):
        clock.advance(seconds=60)
        await field.sweep()
    assert not field.events.of(ReconcilerPaused)
    assert len(field.events.of(RowQuarantined)) == ROWS // 5


async def test_rows_that_were_refused_before_open_nothing_in_another_process(
    field: Field, clock: ManualClock, database_url: str
) -> None:
    fixes = Fixes("plain")
    await fixes.declare(field)
    await field.do("update things set kind = 'bad' where id % 5 = 0")
    await field.do("insert into refused values ('done', 'bad')")
    await field.sweep()
    other = Field(App(database_url, clock=clock))
    async with other.app:
        await other.manual.begin()
        await fixes.declare(other, fill=False)
        clock.advance(seconds=60)
        assert (await other.sweep()).retry == ROWS // 5
        assert not other.events.of(ReconcilerPaused)
        await other.close()


async def test_rows_that_are_refused_alone_are_suspects_once_another_row_is_written(
    field: Field, clock: ManualClock
) -> None:
    fixes = Fixes("plain")
    await fixes.declare(field, rows=4, pause_after=3)
    await field.do("update things set kind = 'bad'")
    await field.do("insert into refused values ('done', 'bad')")
    await field.sweep()
    assert len(field.events.of(ReconcilerPaused)) == 1
    await field.do("insert into things (id, state) values (5, 'new')")
    for _ in range(8):
        clock.advance(seconds=1_000)
        await field.sweep()
    assert (await field.states())["done"] == 1
    assert len(field.events.of(RowQuarantined)) == 4
    assert (await field.gate())["paused_until"] is None


@pytest.mark.parametrize("by", ["kind", lambda row: row.kind], ids=["column", "function"])
async def test_only_rows_of_the_key_whose_outcomes_are_refused_wait(field: Field, clock: ManualClock, by: Any) -> None:
    fixes = Fixes("plain")
    await fixes.declare(field, pause_by=by)
    await field.do("update things set kind = 'b' where id > 20")
    await field.do("insert into refused values ('done', 'a')")
    await field.sweep()
    assert await field.states() == {"new": 20, "done": 40}
    assert {paused.key for paused in field.events.of(ReconcilerPaused)} == {"a"}
    await field.do("delete from refused")
    for _ in range(4):
        clock.advance(seconds=40)
        await field.sweep()
    assert await field.states() == {"done": ROWS}
    assert not field.events.of(RowQuarantined)


async def test_without_a_breaker_each_refused_row_spends_its_attempts(field: Field, clock: ManualClock) -> None:
    fixes = Fixes("plain")
    await fixes.declare(field, pause_after=None)
    await field.do("insert into refused values ('done', 'all')")
    for _ in range(3):
        await field.sweep()
        clock.advance(seconds=60)
    assert len(field.events.of(RowQuarantined)) == ROWS
    assert not await field.value("select pauses from trueup.reconcilers where name = %s", (NAME,))
