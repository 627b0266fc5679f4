"""What `tx=` takes: the caller's own connection, in the caller's own transaction.

A psycopg connection, or one of asyncpg; or what SQLAlchemy has around either of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from trueup.errors import ConfigError
from trueup.store.asyncpg import AsyncpgConnection, is_asyncpg, is_of

CallersConnection = AsyncConnection[Any] | AsyncpgConnection


async def connection_of(tx: Any) -> CallersConnection:
    """Raises ConfigError when it is no connection that can be awaited, or has no transaction to take part in."""
    if is_of("sqlalchemy", tx):
        tx = await _sqlalchemy().connection_of(tx)
    if is_asyncpg(tx):
        return AsyncpgConnection(tx)
    if not isinstance(tx, AsyncConnection):
        raise ConfigError(f"tx= takes an open psycopg AsyncConnection here, not {type(tx).__name__}" + _hint(tx))
    _has_transaction(tx)
    return tx


def connection_of_sync(tx: Any) -> Connection[Any]:
    if is_of("sqlalchemy", tx):
        tx = _sqlalchemy().connection_of_sync(tx)
    if not isinstance(tx, Connection):
        raise ConfigError(f"tx= takes an open psycopg Connection here, not {type(tx).__name__}" + _hint(tx))
    _has_transaction(tx)
    return tx


def _sqlalchemy() -> Any:
    # By name: integrations are edges that nothing here may depend on.
    return import_module("trueup.integrations.sqlalchemy_transactions")


def _hint(tx: object) -> str:
    if isinstance(tx, Connection):
        return "; use enqueue_sync with a sync connection"
    if isinstance(tx, AsyncConnection) or is_asyncpg(tx):
        return "; use `await …enqueue` with an async connection"
    if is_of("asyncpg", tx):
        return "; of asyncpg's it takes the connection"
    return ""


def _has_transaction(tx: AsyncConnection[Any] | Connection[Any]) -> None:
    if tx.autocommit and tx.info.transaction_status == TransactionStatus.IDLE:
        raise ConfigError(
            "tx=: this connection is in autocommit mode and no transaction is open; use it inside `with conn.transaction():`"
        )
