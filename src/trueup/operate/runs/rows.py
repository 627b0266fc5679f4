"""Lists and counts the rows that match a reconciler now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import psycopg
from psycopg import errors

from trueup.config import Settings
from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.operate.runs.results import Run
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.store.db.connect import TIMED_OUT, is_away
from trueup.store.rows import tables
from trueup.store.rows.guard import try_every
from trueup.store.rows.purges import Purges
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.texts import describe
from trueup.work.rows.services import check, owner

MAX_COUNTED = 1_000_000  # rows; counting more would take longer than people like to wait


@asynccontextmanager
async def looking(store: Store, settings: Settings, declared: Reconciler | Purge) -> AsyncIterator[Rows | Purges]:
    """A reconciler's rows for reading: nothing is claimed, and nothing is written. Raises ConfigError as a worker's start
    would."""
    who = f"reconciler {declared.name!r}"
    connection = store.own_connection("look", keep=True, for_rows=True)
    try:
        found = await tables.find(connection, store.statements, declared.selection.table, who)
        check(found, who, declared)
        timeout = settings.statement_timeout
        if isinstance(declared, Purge):
            yield Purges(connection, store.statements, store.clock, declared, found, timeout)
            return
        yield Rows(
            connection,
            connection,
            store.statements,
            store.clock,
            store.enqueue,
            declared,
            found,
            owner=owner(settings),
            timeout=timeout,
        )
    finally:
        await connection.close()


async def tried(store: Store, settings: Settings, of: Rows | Purges) -> None:
    """Have PostgreSQL plan every statement that a sweep may send. Raises ConfigError for one that it refuses."""
    name = of.purge.name if isinstance(of, Purges) else of.reconciler.name
    who, timeout = f"reconciler {name!r}", settings.statement_timeout
    await try_every(store.pool, of.made.every(), of.found, timeout=timeout, who=who)


async def waiting(of: Rows | Purges, late_by: timedelta | None = None) -> int | None:
    """How many rows match; None when there are too many to count, or when counting takes too long.

    Raises ConfigError when PostgreSQL refuses the statement: its `where=` raises, or the role may not read.
    """
    try:
        count = await of.waiting(MAX_COUNTED, late_by=late_by)
    except TIMED_OUT:
        return None
    except psycopg.Error as error:
        if is_away(error) or isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
            raise  # a table of trueup's own: the user's has just been looked at
        name = of.purge.name if isinstance(of, Purges) else of.reconciler.name
        raise refused(name, error) from None
    return None if count >= MAX_COUNTED else count


def refused(name: str, error: psycopg.Error) -> ConfigError:
    return ConfigError(f"reconciler {name!r}: PostgreSQL refuses the statement: {describe(error)}")


@contextmanager
def slowness_explained(name: str, settings: Settings, run: Run | None = None) -> Iterator[None]:
    try:
        yield
    except errors.QueryCanceled:
        limit = format_duration(settings.statement_timeout)
        index = f"make the index: {run.index_ddl}" if run is not None and run.index_ddl else "an index may be missing"
        raise ConfigError(
            f"reconciler {name!r}: a statement took longer than statement_timeout={limit}; {index}"
        ) from None
    except psycopg.Error as error:
        if is_away(error):
            raise
        raise refused(name, error) from None
