"""SQLAlchemy's sessions and connections for `tx=`: the driver's connection under them, in a transaction that they will end.

SQLAlchemy begins when the first statement goes through it, and not before. A statement sent past it would never be committed,
or at once: so a transaction that has not begun is begun with a statement that does nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from psycopg.pq import TransactionStatus

from trueup.errors import ConfigError
from trueup.store.db.callers import TWO_PHASE

try:
    from sqlalchemy import Connection, TwoPhaseTransaction, text
    from sqlalchemy.exc import UnboundExecutionError
    from sqlalchemy.orm import Session, scoped_session
except ImportError as error:  # pragma: no cover - the tests have it
    raise ConfigError('SQLAlchemy sessions need SQLAlchemy 2: pip install "trueup[sqlalchemy]"') from error

NOTHING = text("select")
SEVERAL_BINDS = (
    "tx=: this session has several engines (binds=) and cannot say which one is meant; pass the connection to the database "
    "that has trueup's tables: tx={wait}session.connection(bind_arguments={{'mapper': …}})"
)
ASYNC_SESSIONS: tuple[type[Any], ...] = ()
ASYNC_CONNECTIONS: tuple[type[Any], ...] = ()

with suppress(ImportError):  # it needs greenlet, which only users of asyncio install
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    ASYNC_SESSIONS, ASYNC_CONNECTIONS = (AsyncSession, async_scoped_session), (AsyncConnection,)


async def connection_of(tx: Any) -> Any:
    """Raises ConfigError for what is not an AsyncSession or an AsyncConnection."""
    if isinstance(tx, ASYNC_SESSIONS):
        try:
            tx = await tx.connection()
        except UnboundExecutionError:
            raise ConfigError(SEVERAL_BINDS.format(wait="await ")) from None
    if not isinstance(tx, ASYNC_CONNECTIONS):
        hint = (
            "; use enqueue_sync with it (fence_sync for a fence)"
            if isinstance(tx, Session | scoped_session | Connection)
            else ""
        )
        raise ConfigError(f"tx= takes SQLAlchemy's AsyncSession or AsyncConnection here, not {type(tx).__name__}{hint}")
    if isinstance(tx.sync_connection.get_transaction(), TwoPhaseTransaction):
        raise ConfigError(TWO_PHASE)
    driver = (await tx.get_raw_connection()).driver_connection
    if not tx.in_transaction() or not _has_begun(driver):
        await tx.execute(NOTHING)
    return driver


def connection_of_sync(tx: Any) -> Any:
    """Raises ConfigError for what is not a Session or a Connection."""
    if isinstance(tx, Session | scoped_session):
        try:
            tx = tx.connection()
        except UnboundExecutionError:
            raise ConfigError(SEVERAL_BINDS.format(wait="")) from None
    if not isinstance(tx, Connection):
        waits = isinstance(tx, (*ASYNC_SESSIONS, *ASYNC_CONNECTIONS))
        hint = "; use `await …enqueue` with it (`await …fence` for a fence)" if waits else ""
        raise ConfigError(f"tx= takes SQLAlchemy's Session or Connection here, not {type(tx).__name__}{hint}")
    if isinstance(tx.get_transaction(), TwoPhaseTransaction):
        raise ConfigError(TWO_PHASE)
    driver = tx.connection.driver_connection
    if not tx.in_transaction() or not _has_begun(driver):
        tx.execute(NOTHING)
    return driver


def _has_begun(driver: Any) -> bool:
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())
    info = getattr(driver, "info", None)
    return getattr(info, "transaction_status", None) != TransactionStatus.IDLE
