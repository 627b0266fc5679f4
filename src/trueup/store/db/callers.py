"""The one place that checks callers' transactions: what `tx=` and `lease.fence` take, and what they refuse.

They take a connection of psycopg, asyncpg, SQLAlchemy or Django, or a session of SQLAlchemy, with an open transaction that the
caller will end. Everything else is refused before anything is sent: outside a transaction a job would be stored even if the
caller's rows are rolled back, and a fence would lock nothing. The caller's connection is never closed here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import PipelineStatus, TransactionStatus

from trueup.building import imported
from trueup.errors import ConfigError
from trueup.store.db.asyncpg import FAILED, AsyncpgConnection, is_asyncpg, is_of

CallersConnection = AsyncConnection[Any] | AsyncpgConnection

TWO_PHASE = (
    "tx=: two-phase transactions are not supported; PostgreSQL cannot prepare a transaction that has sent a notification. "
    "Use an ordinary transaction"
)

BUSY_FOR = 30.0  # seconds: another task's statement may take that long, and a loop over `stream()` ends only after we have returned
BUSY = (
    "tx=: this connection has been busy with another statement for {:g} s. Inside a loop over `cursor.stream()` or a block of "
    "`cursor.copy()` nothing else can be sent: read the rows first, or use a server-side cursor"
)


async def connection_of(tx: Any) -> CallersConnection:
    """Raises ConfigError when it is not a connection that can be awaited, or has no transaction to take part in."""
    if is_of("sqlalchemy", tx):
        tx = await _sqlalchemy().connection_of(tx)
    if is_asyncpg(tx):
        return AsyncpgConnection(tx)
    if not isinstance(tx, AsyncConnection):
        raise ConfigError(f"tx= takes an open psycopg AsyncConnection here, not {_type_of(tx)}{_hint(tx, sync=False)}")
    _check_open(tx)
    if in_pipeline(tx):
        # What was queued is sent first: until then it is not known whether a transaction is open.
        async with tx.pipeline():
            pass
    elif tx.info.transaction_status == TransactionStatus.ACTIVE:
        try:
            async with asyncio.timeout(BUSY_FOR), tx.lock:  # another task's statement is under way
                pass
        except TimeoutError:
            raise ConfigError(BUSY.format(BUSY_FOR)) from None
    _check_transaction(tx)
    return tx


def connection_of_sync(tx: Any) -> Connection[Any]:
    """The same for code without an event loop."""
    if is_of("sqlalchemy", tx):
        tx = _sqlalchemy().connection_of_sync(tx)
    elif is_django(tx):
        tx = _driver_of_django(tx)
    if not isinstance(tx, Connection):
        raise ConfigError(f"tx= takes an open psycopg Connection here, not {_type_of(tx)}{_hint(tx, sync=True)}")
    _check_open(tx)
    if in_pipeline(tx):
        with tx.pipeline():
            pass
    elif tx.info.transaction_status == TransactionStatus.ACTIVE:
        if not tx.lock.acquire(timeout=BUSY_FOR):
            raise ConfigError(BUSY.format(BUSY_FOR))
        tx.lock.release()
    _check_transaction(tx)
    return tx


def in_pipeline(connection: AsyncConnection[Any] | Connection[Any]) -> bool:
    return connection.pgconn.pipeline_status != PipelineStatus.OFF


def is_django(tx: object) -> bool:
    """Whether it is a connection of Django's: `django.db.connection`, or one of `django.db.connections`."""
    return is_of("django", tx) and hasattr(tx, "ensure_connection")


def _driver_of_django(tx: Any) -> Any:
    if tx.vendor != "postgresql":
        raise ConfigError(f"tx=: this Django connection leads to {tx.display_name}, not to PostgreSQL")
    tx.ensure_connection()
    if tx.needs_rollback:  # Django knows of a failure that the server may have forgotten
        raise ConfigError(FAILED)
    return tx.connection


def _sqlalchemy() -> Any:
    # By name: integrations are edges that nothing here may depend on.
    return imported("trueup.integrations.sqlalchemy_transactions")


def _type_of(tx: object) -> str:
    package, name = type(tx).__module__.partition(".")[0], type(tx).__name__
    return name if package in ("builtins", "psycopg") else f"{package}'s {name}"  # many drivers have a Connection


def _hint(tx: object, *, sync: bool) -> str:
    if is_of("psycopg2", tx):
        return (
            "; psycopg2 is not supported. Use psycopg 3 for this connection "
            "(in SQLAlchemy postgresql+psycopg://; Django uses it when it is installed)"
        )
    if isinstance(tx, AsyncCursor | Cursor) or is_django_cursor(tx):
        return "; pass the connection that the cursor belongs to"
    if not sync and (isinstance(tx, Connection) or is_django(tx)):
        return "; use enqueue_sync with a sync connection (fence_sync for a fence)"
    if sync and (isinstance(tx, AsyncConnection) or is_asyncpg(tx)):
        return "; use `await …enqueue` with an async connection (`await …fence` for a fence)"
    if is_of("asyncpg", tx):
        return "; of asyncpg's it takes the connection"
    if is_of("psycopg_pool", tx):
        return "; pass a connection of the pool, inside a transaction"
    return ""


def is_django_cursor(tx: object) -> bool:
    return is_of("django", tx) and hasattr(tx, "cursor") and hasattr(tx, "db")


def _check_open(tx: AsyncConnection[Any] | Connection[Any]) -> None:
    if tx.closed:
        raise ConfigError("tx=: this connection is closed; pass one that is open, inside a transaction")


def _check_transaction(tx: AsyncConnection[Any] | Connection[Any]) -> None:
    if tx._tpc is not None:  # psycopg has no public name for it
        raise ConfigError(TWO_PHASE)
    match tx.info.transaction_status:
        case TransactionStatus.INERROR:
            raise ConfigError(FAILED)
        case TransactionStatus.IDLE if tx.autocommit:
            raise ConfigError(
                "tx=: this connection is in autocommit mode and no transaction is open; use it inside "
                "`with conn.transaction():` (Django: `with transaction.atomic():`)"
            )
