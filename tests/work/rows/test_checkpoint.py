"""`ctx.checkpoint`: a fenced write in the middle of a claim, which keeps it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.work.rows.field import Field
from trueup import App, ConfigError, Context, LostClaim, Now, Retry, To, injected
from trueup.reconcile.declare import Table
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio

EXTRA = "alter table things add version int not null default 7, add owner text, add until timestamptz"
MODES: dict[str, dict[str, Any]] = {
    "xmin": {"table": {}, "options": {"due_at": "due_at"}},
    "changed_at": {"table": {"changed_at": "changed_at"}, "options": {"stale_for": "10m"}},
    "version": {"table": {"changed_at": "changed_at", "version": "version"}, "options": {"stale_for": "10m"}},
    "claimed_as": {"table": {"changed_at": "changed_at"}, "options": {"stale_for": "10m", "claimed_as": "busy"}},
    "claimed_as and xmin": {"table": {}, "options": {"due_at": "due_at", "claimed_as": "busy"}},
    "lease_columns": {"table": {"lease_columns": ("owner", "until")}, "options": {"due_at": "due_at"}},
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> dict[str, Any]:
    return MODES[request.param]


async def fix(field: Field, mode: dict[str, Any], handler: Any, /, **options: Any) -> None:
    await field.do(EXTRA)
    table: Table = field.app.table("things", key="id", state="state", **mode["table"])
    field.fix(handler, table=table, **{**mode["options"], **options})
    await field.put(3)


async def test_it_is_there_at_once_and_the_outcome_is_written_after_it(field: Field, mode: dict[str, Any]) -> None:
    seen: list[Any] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        for n in (10, 20):
            await ctx.checkpoint(n=n, note=f"step {n}")
            thing = await field.thing(row.id)
            seen.append((thing["n"], thing["note"]))
        return To("done", note="over")

    await fix(field, mode, handler, concurrency=1)
    counts = await field.sweep()
    assert (counts.changed, counts.conflict) == (3, 0)
    assert seen == [(10, "step 10"), (20, "step 20")] * 3
    assert [(t["state"], t["n"], t["note"]) for t in await field.ask("select * from things")] == [
        ("done", 20, "over")
    ] * 3


async def test_it_stays_when_the_handler_fails_and_the_row_is_tried_again(
    field: Field, clock: ManualClock, mode: dict[str, Any]
) -> None:
    found: list[int] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        found.append(row.n)
        if row.n == 0:
            await ctx.checkpoint({"n": 5})
            raise ConnectionError("later")
        return To("done")

    await fix(field, mode, handler)
    assert (await field.sweep()).retry == 3
    assert {(row["state"], row["n"]) for row in await field.ask("select * from things")} == {("new", 5)}
    clock.advance(seconds=2)
    assert (await field.sweep()).changed == 3
    assert found == [0, 0, 0, 5, 5, 5]


async def test_what_somebody_else_has_written_meanwhile_is_not_overwritten(field: Field, mode: dict[str, Any]) -> None:
    if "lease_columns" in mode["table"]:
        theirs = "update things set note = 'theirs', owner = 'me', until = now() + interval '1 h' where id = 1"
    else:
        theirs = "update things set note = 'theirs', changed_at = now(), version = version + 1 where id = 1"
    raised: list[BaseException] = []

    async def handler(row: Any, *, ctx: Context) -> Any:
        if row.id == 1:
            await field.do(theirs)
            try:
                await ctx.checkpoint(note="ours")
            except LostClaim as error:
                raised.append(error)
        return To("done")

    await fix(field, mode, handler)
    counts = await field.sweep()
    assert (counts.changed, len(raised)) == (2, 1)
    assert (await field.thing(1))["note"] == "theirs"
    assert (await field.thing(1))["state"] != "done"


async def test_a_holder_whose_lease_has_passed_writes_nothing(
    field: Field, clock: ManualClock, mode: dict[str, Any]
) -> None:
    raised: list[BaseException] = []
    other = ManualWorker(field.app)

    async def handler(row: Any, *, ctx: Context) -> Any:
        if row.n == 3:  # what the first one had reached, found by the second
            return To("done", note="second")
        await ctx.checkpoint(n=3)
        clock.advance(minutes=2)
        try:
            await ctx.checkpoint(n=4)
        except LostClaim as error:
            raised.append(error)
            raise
        return To("done", note="first")

    await fix(field, mode, handler, concurrency=1, batch=1)
    await field.do("delete from things where id > 1")
    await field.sweep()
    assert len(raised) == 1
    assert (await field.thing(1))["n"] == 3
    clock.advance(minutes=2)
    await other.begin()
    for _ in range(2):  # one that was found in its working state is noted first
        await other.sweep("fix")
        clock.advance(minutes=2)
    await other.end()
    thing = await field.thing(1)
    assert (thing["state"], thing["n"], thing["note"]) == ("done", 3, "second")


async def test_one_that_postgresql_refuses_changes_nothing_and_leaves_the_claim(
    field: Field, mode: dict[str, Any]
) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        with pytest.raises(psycopg.errors.CheckViolation):
            await ctx.checkpoint(n=5000)
        await ctx.checkpoint(n=5)
        return To("done")

    await fix(field, mode, handler)
    assert (await field.sweep()).changed == 3
    assert {row["n"] for row in await field.ask("select n from things")} == {5}


@pytest.mark.parametrize("columns", [{"nothing": 1}, {"id": 1}, {"state": "done"}, {"twice": 1}])
async def test_columns_that_are_not_its_own_to_set_are_refused(field: Field, columns: dict[str, Any]) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        with pytest.raises(ConfigError):
            await ctx.checkpoint(**columns)
        return To("done")

    await fix(field, MODES["changed_at"], handler)
    assert (await field.sweep()).changed == 3


async def test_it_is_refused_where_it_makes_no_sense(field: Field, app: App) -> None:
    async def handler(row: Any, *, tx: Any, ctx: Context) -> Any:
        with pytest.raises(ConfigError, match="row_lock"):
            await ctx.checkpoint(n=1)
        return To("done")

    await fix(field, MODES["changed_at"], handler, claim="row_lock")
    assert (await field.sweep()).changed == 3

    @app.job(retry=Retry(max_attempts=1))
    async def plain(ctx: Context = injected) -> str:
        with pytest.raises(ConfigError, match="a job has none"):
            await ctx.checkpoint(n=1)
        return "refused"

    async with app.worker():
        assert await (await plain.enqueue()).result(timeout="15s") == "refused"


async def test_in_shadow_nothing_is_written(field: Field) -> None:
    async def handler(row: Any, *, ctx: Context) -> Any:
        await ctx.checkpoint(n=1)
        return To("done")

    await fix(field, MODES["changed_at"], handler, mode="shadow")
    before = await field.checksum()
    await field.sweep()
    assert await field.checksum() == before


@pytest.mark.parametrize("plain", [{"note": "it's 100% ours"}, {"n": 12, "note": None}])
async def test_a_claim_sets_columns(field: Field, clock: ManualClock, plain: dict[str, Any]) -> None:
    seen: list[dict[str, Any]] = []

    async def handler(row: Any) -> Any:
        seen.append(await field.thing(row.id))
        raise ConnectionError("later")

    await fix(field, {"table": MODES["version"]["table"], "options": {"stale_for": "10m"}}, handler, name="plain")
    claimed_as = To("busy", {"until": Now(), **plain})
    table: Table = field.app.table("things", key="id", state="state", changed_at="changed_at", version="version")
    field.fix(handler, table=table, claimed_as=claimed_as)
    assert (await field.sweep()).retry == 3
    for thing in seen:
        assert (thing["state"], thing["until"], thing["version"]) == ("busy", clock.now(), 8)
        assert {name: thing[name] for name in plain} == plain
    thing = await field.thing(1)
    assert (thing["state"], thing["until"]) == ("new", clock.now())  # the state is put back, the columns stay


@pytest.mark.parametrize(
    "claimed_as", [To("busy", id=1), To("busy", state="x"), To("busy", changed_at=None), To("busy", nothing=1)]
)
async def test_columns_that_a_claim_cannot_set_are_refused(field: Field, claimed_as: To) -> None:
    with pytest.raises(ConfigError):
        field.fix(lambda row: None, claimed_as=claimed_as)
        await field.sweep()


async def test_now_is_for_claims_only(field: Field) -> None:
    async def handler(row: Any) -> Any:
        return To("done", due_at=Now())

    field.fix(handler, retry=Retry(max_attempts=1))
    await field.put(1)
    assert (await field.sweep()).quarantined == 1
    assert "Now() is for claimed_as=" in str((await field.known() or {})["errors"])
