"""Connections that report a commit as uncertain when its wait for a synchronous standby was cancelled, and that recognise every lost
connection.

With synchronous replication, PostgreSQL answers a commit when a standby has it. If the wait is cancelled (by `pg_cancel_backend`, or by
a client that gives up), PostgreSQL answers with success and a warning: the transaction is committed on the primary, and is lost if the
primary fails now. These connections turn the warning into an error of the class whose outcome is unknown.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, Connection, errors
from psycopg.abc import PQGen

from trueup.aside import aside


async def with_addresses(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a connection with the addresses of its hosts, so that there is nothing left to look up.

    psycopg looks them up in the event loop's default executor, which has few threads. Handlers that call `asyncio.to_thread` may keep
    all of them, and then a connection that broke could not be made anew for as long as their calls take.

    A host of which none is found is left out. Raises psycopg.OperationalError when no host is left.
    """
    hosts = str(settings.get("host") or "").split(",")
    ports = str(settings.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if settings.get("hostaddr") or not any(map(_is_name, hosts)) or len(ports) != len(hosts):
        return dict(settings)
    found = await aside(lambda: [*map(_addresses, hosts)], "trueup resolver")
    each = [
        (host, address, port)
        for host, port, addresses in zip(hosts, ports, found, strict=True)
        if not isinstance(addresses, OSError)
        for address in addresses
    ]
    if not each:
        raise psycopg.OperationalError(f"failed to resolve host {hosts[-1]!r}: {found[-1]}")
    return {**settings, **dict(zip(("host", "hostaddr", "port"), map(",".join, zip(*each, strict=True)), strict=True))}


def _is_name(host: str) -> bool:
    return bool(host) and not host.startswith(("/", "@"))


def _addresses(host: str) -> list[str] | OSError:
    if not _is_name(host):
        return [""]
    try:
        return [*dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))]
    except OSError as error:
        return error
    except UnicodeError as error:  # a label that is empty or too long
        return OSError(str(error))


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
