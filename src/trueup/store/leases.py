"""Leases in PostgreSQL: as rows (works behind poolers), or as advisory locks on a connection of their own.

Terms come from the `leases` table for every backend, so that the database refuses an older holder whatever kept the lease.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, Connection

from trueup.clock import Clock
from trueup.errors import ConfigError, LostLease
from trueup.store.connect import RETRYABLE
from trueup.store.line import Rows, fetch
from trueup.store.load import Statements
from trueup.store.pool import fetch_sync

Connect = Callable[[str], Connection[Any]]


def label() -> str:
    """Who holds it, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Terms:
    """Terms and their fence, on a connection that is opened when needed and kept."""

    def __init__(self, connect: Connect, statements: Statements, clock: Clock) -> None:
        self._connect = connect
        self._statements = statements
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None

    def run(self, statement: str, **params: Any) -> Rows:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect("lease")
                return fetch_sync(self._connection, self._statements[statement], {"now": self._clock.now(), **params})
            except RETRYABLE:
                self._drop()
                raise

    def mint(self, name: str, holder: UUID) -> int:
        """A new term, larger than every earlier one of this name."""
        ((term,),) = self.run("leases/mint", name=name, holder=holder, label=label())
        return int(term)

    async def fence(self, name: str, term: int, tx: AsyncConnection[Any]) -> None:
        """Raise LostLease unless this is the newest term; it stays so until the caller's transaction ends."""
        if not await fetch(tx, self._statements["leases/fence"], {"name": name, "term": term}):
            raise LostLease(name, term)

    def fence_sync(self, name: str, term: int, tx: Connection[Any]) -> None:
        if not fetch_sync(tx, self._statements["leases/fence"], {"name": name, "term": term}):
            raise LostLease(name, term)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class RowLeases:
    """Leases as rows of the `leases` table, by the database's clock."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        rows = self._terms.run("leases/acquire", name=name, holder=holder, label=label(), ttl=ttl.total_seconds())
        return int(rows[0][0]) if rows else None

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        return bool(self._terms.run("leases/renew", name=name, holder=holder, term=term, ttl=ttl.total_seconds()))

    def release(self, name: str, holder: UUID, term: int) -> None:
        self._terms.run("leases/release", name=name, holder=holder, term=term)

    def fence_name(self, name: str) -> str:
        return name

    def close(self) -> None:
        """The connection belongs to the terms."""


class AdvisoryLeases:
    """A session-level advisory lock on a connection of its own, which is open exactly as long as the lease is held.

    It ends with the connection and so with the process; `ttl` only says how often it is looked after.
    """

    def __init__(self, connect: Connect, statements: Statements, terms: Terms, key: int | None) -> None:
        self._connect = connect
        self._statements = statements
        self._terms = terms
        self._key = key
        self._connection: Connection[Any] | None = None
        self._taken: dict[str, int] = {}

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        connection = self._connect("advisory lease")
        try:
            key = (
                self._key
                if self._key is not None
                else fetch_sync(connection, self._statements["leases/advisory_key"], {"name": name})[0][0]
            )
            ((locked, backend),) = fetch_sync(connection, self._statements["leases/advisory_lock"], {"key": key})
            if not locked:
                return None
            self._taken = {"key": key, "backend": backend}
            self._connection = connection
            if not self._held():
                raise ConfigError(
                    f"lease {name!r}: an advisory lock needs a connection straight to PostgreSQL; this one goes through a pooler in transaction mode, which may give its session to others. Use backend='postgres'"
                )
            return self._terms.mint(self.fence_name(name), holder)
        finally:
            if self._connection is not connection or not self._taken:
                connection.close()

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        try:
            return self._held()
        except RETRYABLE:
            return False  # the lock went with the connection

    def release(self, name: str, holder: UUID, term: int) -> None:
        self.close()

    def fence_name(self, name: str) -> str:
        return f"advisory:{name if self._key is None else self._key}"

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _held(self) -> bool:
        connection = self._connection
        return connection is not None and bool(
            fetch_sync(connection, self._statements["leases/advisory_held"], self._taken)[0][0]
        )
