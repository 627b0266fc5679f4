"""Turns errors of the driver into errors of trueup that say more, for all calls of the Python API.

A database that is away, ended the connection or asks to repeat the transaction is DatabaseUnavailable. A statement that misses a
table, column or function of ours is SchemaMismatch, if the record of migrations agrees. Both name the address, without its
password, and say what to do; the error of the driver is their cause. A value that PostgreSQL cannot hold, as a NUL character or
an integer of 65 bits, is ConfigError. Every other error stays as it is.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeGuard

import psycopg

from trueup.dsn import mask
from trueup.errors import ConfigError, DatabaseUnavailable, SchemaMismatch
from trueup.program import typed
from trueup.store.db.blocking import finish
from trueup.store.db.connect import is_away, unavailable
from trueup.store.db.repository import Database
from trueup.store.health import Health
from trueup.texts import describe

if TYPE_CHECKING:
    from trueup.store.store import Store

# SQLSTATE
NO_SCHEMA = frozenset({"42P01", "3F000"})  # undefined table, undefined schema
MISSING = NO_SCHEMA | {"42703", "42883"}  # undefined column, undefined function
# Numbers out of range, what does not exist in an encoding, NUL in JSON, and other text that no type takes. The driver refuses some by
# itself, without a SQLSTATE.
UNFIT = frozenset({None, "22003", "22021", "22P02", "22P05"})


async def explain(store: Store, database: Database, error: Exception) -> None:
    """Raise an error that says more than this one, if there is one. If a table of trueup is missing, the database is asked why."""
    # An error of a statement over a user's table is a ConfigError, even if the statement also needs a table of trueup.
    said = error.__context__ if isinstance(error, ConfigError) else error
    if isinstance(error, UnicodeEncodeError) or (isinstance(error, psycopg.DataError) and error.sqlstate in UNFIT):
        raise ConfigError(f"PostgreSQL cannot hold a value that was given: {describe(error)}") from error
    if not isinstance(said, psycopg.Error):
        return
    if said.sqlstate in MISSING:
        refusal = None
        with suppress(psycopg.Error, DatabaseUnavailable):
            refusal = await Health(database, store.statements).refusal()
        if refusal is not None:
            raise SchemaMismatch(f"database {mask(store.url)}: {refusal}") from said
    if said is error and is_away(said):
        raise unavailable(store.url, said) from said


class Explained:
    """A block in which errors are explained: `async with`, or `with` for callers without an event loop.

    In a transaction of the caller's, of whatever driver, errors stay the caller's. It has failed, so it cannot be asked which
    migrations there are: only a missing table is taken for a missing schema.
    """

    def __init__(self, store: Store, tx: Any = None) -> None:
        self._store = store
        self._tx = tx

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ours(error):
            finish(explain(self._store, self._store.blocking, error))

    async def __aenter__(self) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ours(error):
            await explain(self._store, self._store.pool, error)

    def _is_ours(self, error: BaseException | None) -> TypeGuard[Exception]:
        if self._tx is not None and getattr(error, "sqlstate", None) in NO_SCHEMA:
            reason = str(error).splitlines()[0]
            schema = self._store.statements.schema
            raise SchemaMismatch(
                f"the database has no trueup schema {schema!r} yet ({reason}); run `{typed('trueup migrate')}`"
            ) from error
        return self._tx is None and isinstance(error, Exception)
