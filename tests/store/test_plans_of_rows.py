"""Statements over users' tables walk the index that is suggested for them and look single rows up by their keys, whatever the
statistics say: with good ones, with none, and with those of a time when there was nothing to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from psycopg.conninfo import conninfo_to_dict

from tests.store.rows_desk import RowsDesk, desk_on, failure
from tests.support.database import TestServer
from trueup import App
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Remove, Rest, RetryAfter
from trueup.reconcile.outcome import Delete, To
from trueup.store.db.load import names, source
from trueup.store.rows.asks import keyed
from trueup.store.rows.batch import MIN_WINDOW
from trueup.store.rows.guard import index_ddl
from trueup.store.rows.purges import Purges
from trueup.store.rows.rows import Rows
from trueup.store.rows.tables import signed

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ROWS = 60_000  # of each state
HOUR = timedelta(hours=1)
TABLE = """
create table t (id int primary key, state text not null, changed_at timestamptz not null, note text, owner text, until timestamptz)
  with (autovacuum_enabled = off)
"""
# Half of the backlog is known already: rests for long, or has come due again just now.
KNOWN = """
insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)
select 'look', n::text, 'resting', now() + case when n % 4 = 0 then interval '-1 min' else interval '1 day' end, n, 1, now(), now()
  from generate_series(1, {rows}, 2) as n
union all
select 'look', n::text, 'resting', now() - interval '1 min', n, 1, now(), now() from generate_series(2, {rows}, 20) as n
union all
select 'look', n::text, 'quarantined', now() + interval '1 day', n, 1, now(), now() from generate_series(4, {rows}, 20) as n
"""
STALE: dict[str, Any] = {"stale_for": "10m", "spec": {"changed_at": "changed_at"}}
OWN = {"changed_at": "changed_at", "lease_columns": ("owner", "until")}

Statistics = Callable[[RowsDesk], Awaitable[None]]


async def fill(desk: RowsDesk, state: str, start: int) -> None:
    async with desk.connection.cursor() as cursor, cursor.copy("copy t (id, state, changed_at) from stdin") as copy:
        for n in range(start, start + ROWS):
            await copy.write(f"{n}\t{state}\t2026-01-01 00:{n // 60 % 60:02}:{n % 60:02}+00\n")


async def fresh(desk: RowsDesk) -> None:
    """Filled a moment ago, never looked at by the planner's statistics."""
    await fill(desk, "done", 1_000_001)
    await fill(desk, "open", 1)
    await desk.run(KNOWN.format(rows=ROWS))


async def good(desk: RowsDesk) -> None:
    await fresh(desk)
    await desk.run("vacuum analyze t")
    await desk.run("vacuum analyze trueup.rows")


async def outdated(desk: RowsDesk) -> None:
    """From before the backlog came: no row is open, nothing is known."""
    await fill(desk, "done", 1_000_001)
    await desk.run("analyze t")
    await desk.run("analyze trueup.rows")
    await fill(desk, "open", 1)
    await desk.run(KNOWN.format(rows=ROWS))


class Filled:
    """A database for each kind of statistics, filled when it is first asked for; tests get clones of it."""

    def __init__(self, server: TestServer, stack: ExitStack) -> None:
        self._server, self._stack = server, stack
        self._urls: dict[Statistics, str] = {}

    async def template(self, statistics: Statistics) -> str:
        if statistics not in self._urls:
            url = self._stack.enter_context(self._server.database())
            async with App(url) as app, desk_on(await app.open()) as desk:
                await desk.run(TABLE)
                await desk.run("alter table trueup.rows set (autovacuum_enabled = off)")
                found = (await desk.rows("open", **STALE)).found
                await desk.run(index_ddl(found, state=True, order=["changed_at", "id"]))
                await statistics(desk)
            self._urls[statistics] = url
        return conninfo_to_dict(self._urls[statistics])["dbname"]  # type: ignore[return-value]


@pytest.fixture(scope="session")
def filled(server: TestServer) -> Iterator[Filled]:
    with ExitStack() as stack:
        yield Filled(server, stack)


@pytest_asyncio.fixture(params=[good, fresh, outdated], ids=["good", "none", "outdated"])
async def desk(server: TestServer, filled: Filled, request: pytest.FixtureRequest) -> AsyncIterator[RowsDesk]:
    template = await filled.template(request.param)
    with server.database(template) as url:
        async with App(url) as app, desk_on(await app.open()) as desk:
            yield desk


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


class Plan:
    """What a statement did, and what of the tables it read for that."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.scans = [
            node for node in nodes(plan) if node.get("Relation Name") in ("t", "rows") and "Scan" in node["Node Type"]
        ]

    @property
    def most_rows(self) -> float:
        """The most that one scan or join has looked at."""
        looked_at: float = max(
            (node["Actual Rows"] + sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Join Filter")))
            * node["Actual Loops"]
            for node in nodes(self.plan)
        )
        return looked_at

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in nodes(self.plan) if "Index Name" in node}


async def explained(desk: RowsDesk, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Plan:
    """Done, looked at, and undone."""
    async with desk.connection.transaction(force_rollback=True):
        await desk.connection.execute(steer)
        cursor = await desk.connection.execute(b"explain (analyze, buffers, timing off, format json) " + query, params)
        row = await cursor.fetchone()
        assert row is not None
        return Plan(row[0][0]["Plan"])


async def claim(desk: RowsDesk, rows: Rows, after: int | None = None) -> Plan:
    query, params = rows.claims.statement()
    if after is None:
        return await explained(desk, rows.steer, query, params)
    order = await desk.scalar("select changed_at::text from t where id = %s", after)
    place = {"after_order": order, "after_1": str(after)}
    return await explained(desk, rows.steer, rows.made.once("claim_fresh", "with"), {**params, **place})


async def test_the_looks_of_an_idle_sweep_do_not_grow_with_what_rests(desk: RowsDesk) -> None:
    """A gate reads a few rows, and a probe one window of them, however many are known."""
    rows = await desk.rows("open", **STALE)
    probe = {"now": None, "cut_off": None, "reconciler": "look", "window": MIN_WINDOW}
    plan = await explained(desk, rows.steer, rows.made.once("probe", "start"), probe)
    assert plan.most_rows <= MIN_WINDOW
    assert plan.indexes >= {"rows_pkey"}
    asked = {"now": None, "name": "look", **signed(rows.found.spec)}
    gate = await explained(desk, rows.steer, desk.store.statements["reconcilers/gate"], asked)
    assert {node["Index Name"] for node in gate.scans} == {"rows_due", "rows_set_aside"}
    assert [(node["Index Name"], node["Actual Rows"]) for node in gate.scans if node["Actual Rows"] > 1] == []


async def settle(desk: RowsDesk, rows: Rows, taken: list[ClaimedRow], verdict: Any) -> Plan:
    ((query, params),), _ = rows.asks.of(taken, [verdict] * len(taken), touch=True)
    return await explained(desk, rows.steer, query, {**params, **rows.about(taken[0].holder)})


EXPLAINED = {
    "rows/claim_fresh",
    "rows/claim_again",
    "rows/change",
    "rows/checkpoint",
    "rows/remove",
    "rows/mark",
    "rows/put_back",
    "rows/renew_both",
    "rows/forget",
    "rows/candidates",
    "rows/evaluate",
    "rows/lock",
    "rows/locked_out",
    "rows/change_locked",
    "rows/remove_locked",
    "rows/change_alone",
    "rows/remove_alone",
    "rows/move",
    "rows/delete",
    "rows/move_across",
    "rows/delete_across",
    "rows/picked",
    "rows/waiting",
    "rows/listed",
}
FOR_PEOPLE = {"rows/purgeable", "rows/purge_list", "rows/share"}  # count or list what there is, once


async def test_every_statement_over_a_users_table_is_explained_here(desk: RowsDesk) -> None:
    assert {
        name for name in names() if name.startswith("rows/") and "{table}" in source(name)
    } == EXPLAINED | FOR_PEOPLE


async def test_a_claim_costs_the_same_at_the_start_the_middle_and_the_end_of_a_sweep(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **STALE)
    plans = [await claim(desk, rows), await claim(desk, rows, ROWS // 2), await claim(desk, rows, ROWS - 2_000)]
    for plan in plans:
        assert plan.indexes == {"rows_pkey", "t_pkey", "t_state_changed_at_id_idx"}
        assert plan.most_rows <= 1_000  # the window
        assert plan.buffers < 8_000
    buffers = [plan.buffers for plan in plans]
    assert max(buffers) < 1.2 * min(buffers)


@pytest.mark.parametrize("spec", [STALE["spec"], OWN], ids=["plain", "own columns"])
async def test_what_is_held_is_settled_row_by_row(desk: RowsDesk, spec: dict[str, Any]) -> None:
    rows = await desk.rows("open", stale_for="10m", spec=spec)
    taken = (await rows.claims.fresh(uuid4(), 100, None)).rows
    verdicts: list[Any] = [
        Change(To("done", note="x"), None),
        Change(To("done"), HOUR),
        Remove(Delete()),
        Rest(HOUR, True),
    ]
    for verdict in [*verdicts, RetryAfter(HOUR, failure())]:
        plan = await settle(desk, rows, taken, verdict)
        assert plan.indexes <= {"rows_pkey", "t_pkey"}
        assert plan.most_rows <= 200, verdict
        assert plan.buffers < 10_000
    query, params = rows.renewal(taken[0].holder, taken)
    plan = await explained(desk, rows.steer, query, params)
    assert plan.most_rows <= 200


async def test_rows_claimed_without_marks_are_marked_row_by_row(desk: RowsDesk) -> None:
    rows = await desk.rows("open", stale_for="10m", spec=OWN)
    taken = (await rows.claims.fresh(uuid4(), 100, None, mark=False)).rows
    assert len(taken) == 100
    lease = {"lease_for": rows.reconciler.lease_for.total_seconds()}
    params = {**rows.about(taken[0].holder), **keyed(taken), **lease}
    plan = await explained(desk, rows.steer, rows.made.once("mark"), params)
    assert plan.indexes == {"rows_pkey", "t_pkey"}
    assert plan.most_rows <= 200
    assert plan.buffers < 10_000


async def test_a_checkpoint_looks_up_its_row(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **STALE)
    taken = (await rows.claims.fresh(uuid4(), 1, None)).rows
    params = {**rows.about(taken[0].holder), **keyed(taken), **rows.asks.seen(taken), "c1": ["seen"]}
    plan = await explained(desk, rows.steer, rows.made.checkpoint(("note",)), params)
    assert plan.indexes == {"rows_pkey", "t_pkey"}
    assert plan.most_rows <= 10


async def test_rows_whose_time_has_come_again_are_claimed_along_their_index(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **STALE)
    params = {**rows.claims._about_claim(UUID(int=1)), "cut_off": None, "most": 100, "window": 1_000}
    plan = await explained(
        desk,
        rows.steer,
        rows.made.once("claim_again"),
        {**params, "suspects": False, "after_due": "-infinity", "after_key": "", "place": "t"},
    )
    # Whether the last holder of a row outlived its lease is looked up by the holder's key.
    assert plan.indexes == {"rows_due", "rows_pkey", "t_pkey", "workers_pkey"}
    assert plan.most_rows <= 1_000
    assert plan.buffers < 8_000


async def test_forgetting_looks_at_a_part_at_a_time(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **STALE)
    params = {"now": None, "reconciler": "look", "window": 1_000, "after": None, "after_key": "", "unread": []}
    plan = await explained(desk, rows.steer, rows.made.once("forget"), params)
    assert plan.indexes <= {"rows_due", "rows_set_aside", "rows_pkey", "t_pkey"}
    assert plan.most_rows <= 3_100  # all were set aside at one moment, so their index gives them in no order
    assert plan.buffers < 12_000


async def test_walking_past_rows_that_raise_looks_up_a_window_of_rows_by_their_keys(desk: RowsDesk) -> None:
    spec = {**STALE["spec"], "where": "1 / (id - 700) >= 0"}
    rows = await desk.rows("open", stale_for="10m", spec=spec)
    params = {**rows.claims.statement()[1], "window": 1_000}
    listed = await explained(desk, rows.steer, rows.made.once("candidates", "start"), params)
    assert listed.indexes == {"t_state_changed_at_id_idx", "t_pkey", "rows_pkey"}
    assert listed.most_rows <= 1_000
    await desk.run(
        "insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)"
        " values ('look', '700', 'quarantined', 'infinity', 1, 1, now(), now()) on conflict (reconciler, key) do update"
        " set state = 'quarantined', due_at = 'infinity'"
    )
    claim = await explained(desk, rows.steer, rows.made.once("claim_fresh", "start", guarded=True), params)
    assert claim.indexes == {"t_state_changed_at_id_idx", "t_pkey", "rows_pkey"}
    assert claim.most_rows <= 1_000
    keys = [str(n) for n in range(1, 33)]
    evaluated = await explained(
        desk, rows.steer, rows.made.once("evaluate"), {**params, "key": keys, "whole_key": keys}
    )
    assert evaluated.indexes == {"t_pkey"}
    assert evaluated.most_rows <= 32


async def test_a_row_is_locked_by_its_key(desk: RowsDesk) -> None:
    rows = await desk.rows("open", claim="row_lock", **STALE)
    (row,) = (await rows.claims.fresh(uuid4(), 1, None)).rows
    params = {**rows.about(row.holder), "key": row.key, "term": row.term, "k1": row.key}
    for query in (rows.made.once("lock"), rows.made.once("locked_out")):
        plan = await explained(desk, rows.steer, query, params)
        assert plan.most_rows <= 1
        assert plan.indexes == {"rows_pkey", "t_pkey"}
    params |= {"seen": row.seen, "seen_state": row.state, "state": "done"}
    changing = [rows.composer.change_locked(()), rows.composer.change_alone(())]
    for query in (*changing, rows.made.once("remove_locked"), rows.made.once("remove_alone")):
        plan = await explained(desk, rows.steer, query, params)
        assert plan.most_rows <= 1
        assert plan.indexes == {"t_pkey"}


@pytest.mark.parametrize("verb", ["move", "delete"])
async def test_purging_walks_the_index_and_touches_only_what_goes(desk: RowsDesk, verb: str) -> None:
    more: dict[str, Any] = {"to": "old"} if verb == "move" else {}
    purges: Purges = await desk.purges(verb, "open", batch=500, **STALE, **more)
    plan = await explained(desk, purges.steer, *purges.statement())
    assert "t_state_changed_at_id_idx" in plan.indexes
    assert not [node for node in plan.scans if node["Node Type"] == "Seq Scan"]
    assert plan.most_rows <= 9 * 500  # between which bounds each falls


@pytest.mark.parametrize("verb", ["move", "delete"])
async def test_purging_after_a_refusal_looks_up_what_is_known_and_the_rows_it_takes(desk: RowsDesk, verb: str) -> None:
    more: dict[str, Any] = {"to": "old"} if verb == "move" else {}
    purges: Purges = await desk.purges(verb, "open", batch=500, **STALE, **more)
    params = {**purges.statement()[1], "reconciler": purges.purge.name}
    first = await purges.pick("open", None)
    last = {"after_order": first[-1].order, "after_1": first[-1].key}
    keys = {"k1": [row.key for row in first]}
    passing, keyed = purges.made.take("open", "passing"), purges.made.take("open", "keyed")
    picking = [(purges.made.pick("open", after=True), last), (purges.made.pick("open", after=False), {})]
    for query, given in [(passing, {}), *picking]:
        plan = await explained(desk, purges.steer, query, {**params, **given})
        assert {"t_state_changed_at_id_idx", "rows_pkey"} <= plan.indexes
        assert not [node for node in plan.scans if node["Node Type"] == "Seq Scan"]
        assert plan.most_rows <= 9 * 500
    plan = await explained(desk, purges.steer, keyed, {**params, **keys})
    assert plan.indexes == {"t_pkey"}
    assert not [node for node in plan.scans if node["Node Type"] == "Seq Scan"]
    assert plan.most_rows <= 9 * 500


@pytest.mark.parametrize("verb", ["move", "delete"])
async def test_purging_partitions_walks_their_indexes_and_finds_rows_by_their_keys(desk: RowsDesk, verb: str) -> None:
    await desk.run("create table parts (like t, primary key (id)) partition by range (id)")
    await desk.run("create index on parts (state, changed_at, id)")
    await desk.run(f"create table parts_1 partition of parts for values from (1) to ({ROWS // 2})")
    await desk.run(f"create table parts_2 partition of parts for values from ({ROWS // 2}) to (10000000)")
    await desk.run("insert into parts select * from t")
    more: dict[str, Any] = {"to": "old"} if verb == "move" else {}
    purges: Purges = await desk.purges(verb, "open", table="parts", batch=500, **STALE, **more)
    plan = await explained(desk, purges.steer, *purges.statement())
    assert {"parts_1_pkey", "parts_1_state_changed_at_id_idx"} <= plan.indexes
    assert not [node for node in nodes(plan.plan) if node["Node Type"] == "Seq Scan"]
    assert plan.most_rows <= 9 * 500


async def test_counting_and_listing_stop_at_what_was_asked_for(desk: RowsDesk) -> None:
    rows = await desk.rows("open", **STALE)
    params = {"now": None, "reconciler": "look", "most": 100, "late_by": 0.0}
    listed = await explained(desk, rows.steer, rows.made.once("listed", True), params)
    assert listed.most_rows <= 1_000
    waiting = await explained(desk, rows.steer, rows.made.once("waiting"), params)
    assert "rows_pkey" in waiting.indexes
