"""What every part needs of the database. Everything runs in a transaction of the caller's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from trueup import App

Tx = AsyncConnection[Any]

SCHEMA = (files(__package__) / "schema.sql").read_text("utf-8")


VERSION = f"apps.pulse {hashlib.sha256(SCHEMA.encode()).hexdigest()}"


async def make_tables(tx: Tx) -> None:
    """Several processes may start at once: one makes them, the others find them.

    Nothing is touched when they are there: to look whether an index is there needs a lock that those who write do not let go
    of, and a start in the middle of a run would wait for it, and it for the start.
    """
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('apps.pulse schema', 0))")
    found = await one(tx, "select obj_description(to_regclass('runs'), 'pg_class') as version")
    if found != {"version": VERSION}:
        await tx.execute(SCHEMA)
        await tx.execute(sql.SQL("comment on table runs is {}").format(VERSION))


async def rows(tx: Tx, statement: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, params)
        return await cursor.fetchall()


async def one(tx: Tx, statement: str, params: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    found = await rows(tx, statement, params)
    return found[0] if found else None


async def time_of(app: App, tx: Tx) -> datetime:
    """The database's; in tests that of the App's clock."""
    now = app.clock.now()
    if now is None:
        found = await one(tx, "select clock_timestamp() as now")
        assert found is not None
        now = found["now"]
    return now
