"""A caller's asyncpg connection, as far as enqueueing needs one.

trueup uses psycopg and does not import asyncpg; a caller that passes such a connection has imported it. Two differences matter
here. It has no COPY for a statement of ours, so long batches are several inserts. And callers may set their own codecs, above
all for `jsonb`, so arguments are sent as text and PostgreSQL casts them to `jsonb`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from trueup.errors import ConfigError
from trueup.store.db.load import Statements
from trueup.store.db.message import Fetched, numbered

FAILED = "tx=: the transaction on this connection has already failed; roll it back first"
IN_FAILED_TRANSACTION = "25P02"


def is_of(package: str, thing: object) -> bool:
    """Whether it is of a class of this package, or of one derived from that; nothing is imported to find out."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(thing).__mro__)


def is_asyncpg(connection: object) -> bool:
    """Also one that a pool gave."""
    return is_of("asyncpg", connection) and hasattr(connection, "is_in_transaction")


def _is_closed(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except Exception:  # of asyncpg's own: a pool's connection that was given back answers nothing
        return True


@contextmanager
def _unless_failed() -> Iterator[None]:
    """Raises ConfigError for a transaction that has failed before: asyncpg says so only when a statement is sent."""
    try:
        yield
    except Exception as error:
        if getattr(error, "sqlstate", None) == IN_FAILED_TRANSACTION:
            raise ConfigError(FAILED) from error
        raise


class AsyncpgConnection:
    def __init__(self, connection: Any) -> None:
        """Raises ConfigError when no transaction is open: the job would be committed on its own."""
        if _is_closed(connection):
            raise ConfigError(
                "tx=: this asyncpg connection is closed or back in its pool; pass one inside a transaction"
            )
        if not connection.is_in_transaction():
            raise ConfigError(
                "tx=: no transaction is open on this asyncpg connection; use it inside `async with conn.transaction():`"
            )
        self._connection = connection

    @property
    def encoding(self) -> str:
        """As PostgreSQL calls it."""
        return str(self._connection.get_settings().client_encoding)

    async def fetch(self, query: bytes, params: Mapping[str, Any]) -> Fetched:
        text, names = numbered(query)
        with _unless_failed():
            rows = await self._connection.fetch(text.decode(), *(params[name] for name in names))
        return [tuple(row) for row in rows]

    @asynccontextmanager
    async def savepoint(self, statements: Statements) -> AsyncIterator[None]:
        """All or nothing. Not asyncpg's own block, which refuses a transaction that began with a plain BEGIN."""
        with _unless_failed():
            await self._connection.execute(statements["session/savepoint"].decode())
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                await self._connection.execute(statements["session/roll_back"].decode())
            raise
        await self._connection.execute(statements["session/release"].decode())
