"""Statements over claimed rows find each record by its whole key, whatever the statistics of `trueup.rows` say.

The table is nearly empty most of the time, so its statistics are often missing or from another time. A plan that reads all records of
the reconciler for each row of a batch would then be taken for cheap.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from tests.store.rows_desk import RowsDesk, again, claimed, desk_on, failure, settle_all
from tests.support.interleave import OneConnection
from trueup.reconcile.decide import Change, Release, Remove, RetryAfter
from trueup.reconcile.outcome import Delete, Stay
from trueup.store.db.message import Fetched
from trueup.store.db.own_connection import fetch
from trueup.store.store import Store
from trueup.testing.clock import ManualClock

pytestmark = pytest.mark.asyncio

TABLE = "create table t (id int primary key, state text not null, owner text, until timestamptz)"
FILL = "insert into t select n, 'open' from generate_series(1, 300) as n"
MARKED = {"claimed_as": "working", "spec": {"lease_columns": ("owner", "until")}}
OTHERS = "select n::text from generate_series(1, 3000) as n"
# What is known of `trueup.rows` before the reconciler has its first records.
STATISTICS = ["none", "of an empty table", "of another reconciler"]


class Explaining(OneConnection):
    """Keeps the plan of each statement over `trueup.rows` before it is sent."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self.plans: list[Mapping[str, Any]] = []

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        await self._explain(query, params)
        return await super().fetch(query, params)

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        async with self._connection.transaction():
            await self._connection.execute(steer)
            await self._explain(query, params)
            return await super().fetch_steered(steer, query, params)

    async def _explain(self, query: bytes, params: Mapping[str, Any] | None) -> None:
        ((plan,),) = await fetch(self._connection, b"explain (format json) " + query, params)
        self.plans.append(plan[0]["Plan"])

    def wide(self) -> list[str]:
        """Accesses to records that may read all of them for each row of a batch. A hash join reads them once, if they are few."""
        nodes = [pair for plan in self.plans for pair in _nodes(plan, "")]
        self.plans.clear()
        assert any(node.get("Index Name") == "rows_pkey" for node, _ in nodes), "no access to records was explained"
        found = []
        for node, above in nodes:
            if node.get("Index Name") == "rows_pkey" and "key = " not in node["Index Cond"]:
                found.append(f"{node['Node Type']} by {node['Index Cond']}")
            elif node["Node Type"] == "Seq Scan" and node["Relation Name"] == "rows" and not above.startswith("Hash"):
                found.append(f"Seq Scan in a {above}")
        return found


def _nodes(plan: Mapping[str, Any], above: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Each node, and the type of the one above it."""
    yield plan, above
    for below in plan.get("Plans", ()):
        yield from _nodes(below, plan["Node Type"])


@pytest_asyncio.fixture
async def desk(store: Store) -> AsyncIterator[RowsDesk]:
    async with desk_on(store) as desk:
        await desk.run(TABLE)
        await desk.run(FILL)
        yield desk


@pytest.mark.parametrize("options", [{}, MARKED], ids=["plain", "marked"])
@pytest.mark.parametrize("statistics", STATISTICS)
async def test_records_are_found_by_their_whole_key(
    desk: RowsDesk, store: Store, clock: ManualClock, statistics: str, options: dict[str, Any]
) -> None:
    if statistics == "of another reconciler":
        await desk.plant(OTHERS, name="other")
    if statistics != "none":
        await desk.run("vacuum analyze trueup.rows")
    async with await AsyncConnection.connect(store.url, autocommit=True) as connection:
        database = Explaining(connection)
        rows = await desk.rows("open", database=database, **options)
        holder = uuid4()
        held = await claimed(rows, holder, 300)
        assert len(held) == 300
        database.plans.clear()  # there were no records
        found: dict[str, list[str]] = {}
        await database.fetch(*rows.renewal(holder, held))
        found["renew"] = database.wide()
        await settle_all(rows, held[:60], Change(Stay(), timedelta(seconds=1)))
        found["change"] = database.wide()
        await settle_all(rows, held[60:90], Remove(Delete()))
        found["remove"] = database.wide()
        await settle_all(rows, held[90:200], RetryAfter(timedelta(seconds=1), failure(), spend=True))
        await settle_all(rows, held[200:], Release())
        found["rest"] = database.wide()
        await rows.refund(held[90:200])
        found["refund"] = database.wide()
        clock.advance(seconds=2)
        assert len(await again(rows, holder, 100)) == 100
        found["claim again"] = database.wide()
        await desk.run("update t set state = 'gone'")
        clock.advance(hours=1)
        assert await rows.forget() > 0
        found["forget"] = database.wide()
    assert found == {name: [] for name in found}
