"""Making an application's tables at its start, by any number of processes at once."""

from __future__ import annotations

import hashlib
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import (
    InvalidForeignKey,
    InvalidTableDefinition,
    UndefinedColumn,
    UndefinedObject,
    WrongObjectType,
)

from trueup import ConfigError


async def apply_schema(tx: AsyncConnection[Any], schema: str, *, marked: str) -> None:
    """One process makes the tables, the others find them. `marked` is one of them: a comment on it says what was applied.

    Nothing is touched when they are as they should be: to look whether an index is there takes a lock that those who write
    stand in the way of, and those who come after it wait as well. So a start beside a long transaction would stop everybody.
    """
    await tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"schema of {marked}"])
    version = f"schema {hashlib.sha256(schema.encode()).hexdigest()}"
    cursor = await tx.execute("select obj_description(to_regclass(%s), 'pg_class')", [marked])
    if await cursor.fetchone() != (version,):
        try:
            await tx.execute(schema.encode())
        except (UndefinedColumn, UndefinedObject, WrongObjectType, InvalidForeignKey, InvalidTableDefinition) as error:
            raise ConfigError(
                f"the tables of this application cannot be made here: {error.diag.message_primary}. A table of another"
                " application may have the same name: give each a database of its own (TRUEUP_DATABASE_URL)"
            ) from None
        await tx.execute(sql.SQL("comment on table {} is {}").format(sql.Identifier(marked), version))
