"""Connections that report a commit as uncertain when its wait for a synchronous standby was cancelled, and that recognise every lost
connection.

With synchronous replication, PostgreSQL answers a commit when a standby has it. If the wait is cancelled (by `pg_cancel_backend`, or by
a client that gives up), PostgreSQL answers with success and a warning: the transaction is committed on the primary, and is lost if the
primary fails now. These connections turn the warning into an error of the class whose outcome is unknown.
"""

from __future__ import annotations

from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, Connection, errors
from psycopg.abc import PQGen

from trueup.store.db.addresses import with_addresses

WAITS_IN = "SyncRepWaitForLSN"  # where the server says so; the text itself may be translated


class Unconfirmed(psycopg.OperationalError):
    """Committed on the primary, and perhaps on no standby."""

    sqlstate = errors.TransactionResolutionUnknown.sqlstate

    def __init__(self) -> None:
        super().__init__(
            "the wait for a synchronous standby was cancelled: the transaction is committed on the primary, and is lost if "
            "the primary fails before a standby has it"
        )


class _Noticed:
    """Notices the warning. An object of its own, because a connection with a reference to itself would be closed late."""

    cancelled = False

    def __call__(self, notice: errors.Diagnostic) -> None:
        if notice.source_function == WAITS_IN:
            self.cancelled = True

    def check(self) -> None:
        if self.cancelled:
            self.cancelled = False
            raise Unconfirmed


def _lost(error: psycopg.InternalError) -> psycopg.Error:
    """Without a SQLSTATE, what has arrived was no answer of a server."""
    return psycopg.OperationalError(f"the connection is lost: {error}")


class ConfirmedConnection(Connection[Any]):
    """Raises Unconfirmed from the call that has committed: a statement, a message, or the end of a transaction."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._noticed = _Noticed()
        self.add_notice_handler(self._noticed)

    def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            result = super().wait(gen, *args, **kwargs)
        except psycopg.InternalError as error:
            if error.sqlstate:  # an answer of the server
                raise
            raise _lost(error) from error
        self._noticed.check()
        return result


class AsyncConfirmedConnection(AsyncConnection[Any]):
    """The same for coroutines. Looks up the names of servers without the loop's default executor."""

    @classmethod
    async def connect(cls, conninfo: str = "", **settings: Any) -> Self:
        return await super().connect(conninfo, **await with_addresses(settings))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._noticed = _Noticed()
        self.add_notice_handler(self._noticed)

    async def wait(self, gen: PQGen[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            result = await super().wait(gen, *args, **kwargs)
        except psycopg.InternalError as error:
            if error.sqlstate:  # an answer of the server
                raise
            raise _lost(error) from error
        self._noticed.check()
        return result
