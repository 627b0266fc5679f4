"""What every part needs of the database. Everything runs in a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from trueup.web.database import apply_schema

Tx = AsyncConnection[Any]

SCHEMA = (files(__package__) / "schema.sql").read_text("utf-8")


async def make_tables(tx: Tx) -> None:
    await apply_schema(tx, SCHEMA, marked="runs")


async def rows(tx: Tx, statement: str | sql.Composed, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement, params)
        return await cursor.fetchall()


async def one(tx: Tx, statement: str | sql.Composed, params: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    found = await rows(tx, statement, params)
    return found[0] if found else None
