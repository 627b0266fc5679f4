"""Leases in PostgreSQL: as rows (works behind poolers), or as advisory locks on their own connections.

Terms come from the `leases` table for every backend, so that the database can reject an older holder of any lease.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg import errors

from trueup.errors import ConfigError, DatabaseUnavailable, LostLease, NotAcquired
from trueup.store.db.blocking import fetch_sync
from trueup.store.db.callers import connection_of, connection_of_sync
from trueup.store.db.connect import RETRYABLE
from trueup.store.db.load import Statements
from trueup.store.db.message import Fetched
from trueup.store.db.repeating import repeated_sync
from trueup.store.db.steps import fetch
from trueup.store.db.steps import fetch_sync as fetch_callers
from trueup.store.db.thread_connection import Connect, ThreadConnection

# Statements about leases touch one row. One that takes longer than this is stuck, and renewals queue up behind it.
MAX_SECONDS = 5.0
MIN_SILENCE = timedelta(seconds=60)  # in a fenced transaction between two statements; a call to another system fits in
LOCKED = "another transaction has locked it: a fenced transaction of an earlier holder, or a concurrent acquisition"
ADVISORY_LOOK = 1.0  # seconds between checks of an advisory lock: it ends with its connection, independent of the ttl


def label() -> str:
    """The holder's name, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _fence(name: str, holder: UUID, term: int, silence: timedelta) -> dict[str, Any]:
    seconds = silence.total_seconds()
    params = {"name": name, "holder": holder, "term": term, "silence": seconds}
    return {**params, "silence_ms": str(round(seconds * 1000))}


class Terms:
    """Terms and their fence, and the connections that leases of this process share.

    Renewals have their own connection: they must not wait for acquisitions.
    """

    def __init__(self, connect: Connect, statements: Statements, timeout: timedelta) -> None:
        self._connect = connect
        self._statements = statements
        self._clock = statements.clock
        self._seconds = min(timeout.total_seconds(), MAX_SECONDS)
        self._acquiring = self.connection("lease")
        self._renewing = self.connection("lease renewal")
        self._at_close: list[Callable[[], None]] = []
        self._closed = False

    def connection(self, part: str) -> ThreadConnection:
        return ThreadConnection(self._connect, part, self._seconds)

    def acquire(self, statement: str, name: str, **params: Any) -> Fetched:
        """Run a statement that grants a lease. No rows: another holder has it.

        Raises NotAcquired (`unreachable`) when another transaction has its row locked, and it is not known to be held: an earlier
        holder's fenced transaction is open, or another acquisition is under way.
        """
        self._check_open()
        params = self._at({"name": name, **params})
        with self._acquiring.use() as connection:

            def once() -> Fetched:
                with connection.transaction():
                    fetch_sync(connection, self._statements["leases/patience"])
                    return fetch_sync(connection, self._statements[statement], params)

            try:
                return repeated_sync(once)
            except errors.LockNotAvailable:
                if fetch_sync(connection, self._statements["leases/is_held"], params):
                    return []
        raise NotAcquired(name, LOCKED, unreachable=True)

    def run(self, statement: str, **params: Any) -> Fetched:
        self._check_open()
        return repeated_sync(lambda: self._renewing.fetch(self._statements[statement], self._at(params)))

    def mint(self, name: str, holder: UUID) -> int:
        """A new term for a lease that is kept elsewhere, larger than every earlier one of this name.

        Raises NotAcquired (`unreachable`) while a transaction that an earlier term has fenced is open.
        """
        ((term,),) = self.acquire("leases/mint", name, holder=holder, label=label())
        return int(term)

    async def fence(self, name: str, holder: UUID, term: int, tx: Any, silence: timedelta = MIN_SILENCE) -> None:
        """Raise LostLease unless this is the newest term; it stays so until the caller's transaction ends.

        The server ends a session that is silent inside that transaction for longer than `silence`. Raises ConfigError when `tx` has
        no transaction.
        """
        connection = await connection_of(tx)
        if not await fetch(connection, self._statements["leases/fence"], _fence(name, holder, term, silence)):
            raise LostLease(name, term)

    def fence_sync(self, name: str, holder: UUID, term: int, tx: Any, silence: timedelta = MIN_SILENCE) -> None:
        connection = connection_of_sync(tx)
        if not fetch_callers(connection, self._statements["leases/fence"], _fence(name, holder, term, silence)):
            raise LostLease(name, term)

    def forget_holder(self, name: str, holder: UUID, term: int) -> None:
        """A lease that is kept elsewhere was given back: its fence refuses from here on."""
        self.run("leases/release", name=name, holder=holder, term=term)

    def touch(self, name: str, holder: UUID, term: int) -> None:
        """Mark a lease of another backend as still held, so that housekeeping keeps its term."""
        self.run("leases/touch", name=name, holder=holder, term=term)

    def at_close(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call this before the connections are closed. Returns what takes it back."""
        self._at_close.append(call)

        def forget() -> None:
            if call in self._at_close:
                self._at_close.remove(call)

        return forget

    def close(self) -> None:
        """Tell the holders that their leases are lost: nothing renews them from here on."""
        self._closed = True
        for call in list(self._at_close):
            call()
        self._acquiring.close()
        self._renewing.close()

    def _check_open(self) -> None:
        if self._closed:  # a connection opened now would never be closed
            raise DatabaseUnavailable("the App was closed")

    def _at(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"now": self._clock.now(), **params}


class RowLeases:
    """Leases as rows of the `leases` table, by the database's clock."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        rows = self._terms.acquire("leases/acquire", name, holder=holder, label=label(), ttl=ttl.total_seconds())
        return int(rows[0][0]) if rows else None

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        return bool(self._terms.run("leases/renew", name=name, holder=holder, term=term, ttl=ttl.total_seconds()))

    def release(self, name: str, holder: UUID, term: int) -> None:
        self._terms.run("leases/release", name=name, holder=holder, term=term)

    def renew_every(self, ttl: timedelta) -> float:
        return ttl.total_seconds() / 3

    def fence_name(self, name: str) -> str:
        return name

    def close(self) -> None:
        """The connections belong to the terms."""


class AdvisoryLeases:
    """A session-level advisory lock on a connection of its own, which is open exactly as long as the lease is held.

    It ends with the connection and so with the process; `ttl` only says after how long without an answer it counts as lost.
    One object keeps one lease.
    """

    def __init__(self, terms: Terms, statements: Statements, key: int | None) -> None:
        self._terms = terms
        self._statements = statements
        self._key = key
        self._connection = terms.connection("advisory lease")
        self._taken: dict[str, int] = {}

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        if not self._lock(name):
            return None  # the connection is kept for the next try
        term = None
        try:
            term = self._terms.mint(self.fence_name(name), holder)
        finally:
            if term is None:
                self._connection.close()  # with it goes the lock
        return term

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        if not self._taken:
            return False
        try:
            with self._connection.use() as connection:
                return bool(fetch_sync(connection, self._statements["leases/advisory_held"], self._taken)[0][0])
        except (*RETRYABLE, DatabaseUnavailable):
            return False  # the lock went with the connection

    def release(self, name: str, holder: UUID, term: int) -> None:
        taken, self._taken = self._taken, {}
        if taken:
            self._terms.forget_holder(self.fence_name(name), holder, term)
            with self._connection.use() as connection:
                fetch_sync(connection, self._statements["leases/advisory_unlock"], taken)

    def renew_every(self, ttl: timedelta) -> float:
        return min(ttl.total_seconds() / 3, ADVISORY_LOOK)

    def fence_name(self, name: str) -> str:
        # No name has this sign in it: a number is never taken for the name of another lease.
        return f"advisory:{name}" if self._key is None else f"advisory:={self._key}"

    def close(self) -> None:
        self._connection.close()

    def _lock(self, name: str) -> bool:
        with self._connection.use() as connection:
            # Two schemas of one database are two installations: their leases of the same name are different ones.
            text = f"trueup lease {self._statements.schema} {name}"
            ((hashed, backend),) = fetch_sync(connection, self._statements["leases/advisory_key"], {"name": text})
            if backend != connection.info.backend_pid:
                # A pooler numbers its clients itself. Found out before locking: the lock would stay with its session.
                raise ConfigError(
                    f"lease {name!r}: an advisory lock needs a direct connection to PostgreSQL; this one goes through a "
                    "pooler, which may give the locked session to other clients. Use backend='postgres'"
                )
            key = hashed if self._key is None else self._key
            ((locked,),) = fetch_sync(connection, self._statements["leases/advisory_lock"], {"key": key})
            if locked:
                self._taken = {"key": key, "backend": backend}
            return bool(locked)
