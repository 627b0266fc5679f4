"""The tables of an application: in a schema of its own, made at its start by any number of processes at once."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from psycopg import AsyncConnection, sql
from psycopg.errors import (
    InsufficientPrivilege,
    InvalidForeignKey,
    InvalidTableDefinition,
    UndefinedColumn,
    UndefinedObject,
    WrongObjectType,
)

from trueup.app import App
from trueup.errors import ConfigError

Tx = AsyncConnection[Any]

LOCK = "select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))"
NOT_OURS = (UndefinedColumn, UndefinedObject, WrongObjectType, InvalidForeignKey, InvalidTableDefinition)


async def prepare_database(app: App, make_tables: Callable[[Tx], Awaitable[object]]) -> None:
    """Check that trueup's tables exist, and create the application's in the schema that `search_path` names first.

    Raises ConfigError, or SchemaMismatch, that says what people have to put right first.
    """
    store = await app.open()
    await asyncio.to_thread(store.check_schema)
    async with app.transaction() as tx:
        if app.settings.search_path:
            await _make_schema(tx, app.settings.search_path[0])
        await make_tables(tx)


async def _make_schema(tx: Tx, schema: str) -> None:
    await tx.execute(LOCK, [f"schema {schema}"])
    cursor = await tx.execute("select pg_catalog.to_regnamespace(%s) is not null", [schema])
    if await cursor.fetchone() != (True,):  # without the right to create schemas even `if not exists` is refused
        try:
            await tx.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        except InsufficientPrivilege:
            raise ConfigError(
                f"this role may not create the schema {schema!r}; with a role that may, run"
                f" `create schema {schema} authorization {tx.info.user}`"
            ) from None
    cursor = await tx.execute("select pg_catalog.current_schema()")
    (current,) = await cursor.fetchone() or (None,)
    if current != schema:
        raise ConfigError(
            f"tables would be created in the schema {current!r} instead of {schema!r}: the search_path did not reach the server,"
            f" or the database URL sets another one. Behind a pooler set it for the role (`alter role {tx.info.user} set"
            f" search_path = {schema}`), or name the intended schema in TRUEUP_SEARCH_PATH"
        )


async def apply_schema(tx: Tx, schema: str, *, marked: str) -> None:
    """Run a script that makes the tables, unless this one was run. `marked` is one of the tables: a comment on it says what was.

    Nothing is touched when it was: to look whether an index is there takes a lock that writers are in the way of, and later
    writers wait behind it. So a start beside a long transaction would stop all of them.
    """
    await tx.execute(LOCK, [f"schema of {marked}"])
    version = f"schema {hashlib.sha256(schema.encode()).hexdigest()}"
    cursor = await tx.execute("select pg_catalog.obj_description(pg_catalog.to_regclass(%s), 'pg_class')", [marked])
    if await cursor.fetchone() == (version,):
        return
    try:
        await tx.execute(schema.encode())
    except NOT_OURS as error:
        raise ConfigError(
            f"this application's tables cannot be created here: {error.diag.message_primary}. A table of another"
            " application may have the same name: give each application its own schema (TRUEUP_SEARCH_PATH) or database"
        ) from None
    await tx.execute(sql.SQL("comment on table {} is {}").format(sql.Identifier(marked), version))
