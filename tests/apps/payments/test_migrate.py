"""The tables, up and down, with rows in them, and by many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from psycopg.errors import UniqueViolation

from apps.payments import migrate
from tests.apps.payments.desk import CHAIN, new_address
from trueup import App, ConfigError

pytestmark = pytest.mark.asyncio

LATER = ["0002_reconcile_lease up", "0003_one_spelling up"]


async def columns(app: App) -> set[str]:
    async with app.transaction() as tx:
        cursor = await tx.execute(
            "select column_name from information_schema.columns"
            " where table_schema = 'app' and table_name = 'payment_requests'"
        )
        return {row[0] async for row in cursor}


async def step(app: App, to: int = migrate.LATEST) -> list[str]:
    async with app.transaction() as tx:
        return await migrate.migrate(tx, to)


async def add(app: App, **more: Any) -> None:
    row = {"chain_id": CHAIN, "address": new_address(), "expires_at": "2031-01-01T00:00:00Z", **more}
    names, values = list(row), list(row.values())
    async with app.transaction() as tx:
        marks = ", ".join(["%s"] * len(values))
        await tx.execute(f"insert into app.payment_requests ({', '.join(names)}) values ({marks})", values)


async def test_up_down_and_up_again_with_rows_inside(app: App) -> None:
    assert await step(app, 1) == ["0001_payment_requests up"]
    base = await columns(app)
    await add(app)
    assert await step(app) == LATER
    assert await columns(app) - base >= {"reconcile_lease_owner", "reconcile_lease_until"}
    await add(app, reconcile_lease_owner="a:1/2", reconcile_lease_until="2031-01-01T00:00:00Z")
    async with app.transaction() as tx:
        cursor = await tx.execute(
            "select reconcile_lease_owner, reconcile_lease_until, next_observation_at <= now() from app.payment_requests"
            " order by created_at limit 1"
        )
        assert await cursor.fetchone() == (None, None, True), "a row from before is nobody's, and due"
    assert await step(app, 1) == ["0003_one_spelling down", "0002_reconcile_lease down"]
    assert await columns(app) == base
    assert await step(app) == LATER
    async with app.transaction() as tx:
        cursor = await tx.execute("select count(*), count(reconcile_lease_owner) from app.payment_requests")
        assert await cursor.fetchone() == (2, 0)
    assert await step(app, 0) == ["0003_one_spelling down", "0002_reconcile_lease down", "0001_payment_requests down"]
    assert await columns(app) == set()
    assert await step(app) == ["0001_payment_requests up", *LATER]


async def test_one_address_is_one_request_however_it_is_spelt(app: App) -> None:
    """Its payment would settle both: the chain is asked for it in small letters."""
    address, token = new_address(), f"0x{'ab' * 20}"
    await step(app, 2)
    await add(app, address=address, token=token)
    await add(app, address=address, token=token.upper().replace("X", "x"))
    with pytest.raises(ConfigError, match=f"the same address and token: {CHAIN}, {address}, {token}$"):
        await step(app)
    async with app.transaction() as tx:
        await tx.execute("delete from app.payment_requests where token <> %s", [token])
    assert await step(app) == ["0003_one_spelling up"]
    for again in (address, address.upper().replace("X", "x")):
        with pytest.raises(UniqueViolation):
            await add(app, address=again, token=token)
    await add(app, address=address)


async def test_many_at_once_do_it_once(app: App) -> None:
    taken = await asyncio.gather(*(step(app) for _ in range(8)))
    assert sorted(map(len, taken)) == [0] * 7 + [migrate.LATEST]


async def test_what_a_later_release_has_done_is_left_alone(app: App) -> None:
    await step(app)
    async with app.transaction() as tx:
        await tx.execute("insert into app.payment_migrations (version, name) values (4, 'later')")
    assert await step(app) == []
    with pytest.raises(ConfigError, match="version 4"):
        await step(app, 1)
    with pytest.raises(ConfigError, match="no 9"):
        await step(app, 9)


async def test_the_claim_is_served_by_its_index(app: App) -> None:
    """Among many requests that are over, those that are due are found without reading the others."""
    await step(app)
    async with app.transaction() as tx:
        await tx.execute(
            "insert into app.payment_requests (chain_id, address, expires_at, status, next_observation_at)"
            " select 'eip155:1', n::text, now(), 'confirmed', null from generate_series(1, 20000) as n"
        )
        await tx.execute(
            "insert into app.payment_requests (chain_id, address, expires_at, status)"
            " select 'eip155:1', 'p' || n, now(), 'pending' from generate_series(1, 200) as n"
        )
        await tx.execute("analyze app.payment_requests")
        for status in ("pending", "confirmed"):
            cursor = await tx.execute(
                "explain select id from app.payment_requests where status = %s and next_observation_at <= now()"
                " order by next_observation_at, id limit 100",
                [status],
            )
            plan = "\n".join([row[0] async for row in cursor])
            assert "payment_requests_due" in plan
            assert "Seq Scan" not in plan
            assert "Sort" not in plan


DESCRIBED = """
select table_name, column_name, data_type, numeric_precision, is_nullable, column_default, ordinal_position
  from information_schema.columns where table_schema = 'app' and table_name like 'payment_request%'
 union all
select tablename, indexname, indexdef, null, null, null, 0 from pg_indexes where schemaname = 'app' and tablename <> 'payment_migrations'
 union all
select conrelid::regclass::text, conname, pg_get_constraintdef(oid), null, null, null, 0 from pg_constraint
 where connamespace = 'app'::regnamespace and conrelid::regclass::text <> 'app.payment_migrations'
 order by 1, 2, 7
"""


async def test_the_schema_that_people_read_is_what_the_migrations_make(app: App) -> None:
    found = []
    for make in (migrate.migrate, lambda tx: tx.execute((migrate.MIGRATIONS.joinpath("../schema.sql")).read_bytes())):
        async with app.transaction() as tx:
            await tx.execute("drop schema if exists app cascade")
            await make(tx)
            found.append(await (await tx.execute(DESCRIBED)).fetchall())
    assert found[0] == found[1]
    assert len(found[0]) > 40
