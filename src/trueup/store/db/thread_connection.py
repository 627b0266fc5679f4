"""A connection for threads: opened when first needed, reopened after it broke. The counterpart of `OwnConnection`.

A statement that takes too long is cancelled and its socket is shut: a server that accepts bytes and answers nothing would
otherwise block the thread forever, and with it everything that waits for this connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from psycopg import Connection

from trueup.errors import DatabaseUnavailable
from trueup.store.db.blocking import fetch_limited_sync
from trueup.store.db.connect import RETRYABLE, afresh_sync, give_up_aside, give_up_sync, went_away
from trueup.store.db.forked import begins_anew_when_forked
from trueup.store.db.message import Fetched

Connect = Callable[[str], Connection[Any]]


class ThreadConnection:
    def __init__(self, connect: Connect, part: str, timeout: float, *, for_rows: bool = False) -> None:
        """`for_rows`: what triggers and functions of users set for the session is undone before each statement."""
        self._connect = connect
        self._part = part
        self._timeout = timeout
        self._for_rows = for_rows
        self._afresh: Sequence[bytes] = ()
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        begins_anew_when_forked(self)

    def begin_anew(self) -> object:
        parents, self._connection = self._connection, None
        self._lock = threading.Lock()
        return parents

    def fetch(self, query: bytes, params: Mapping[str, Any], timeout: float | None = None) -> Fetched:
        """Run one statement, which the server ends before this side would give up on it. `timeout`: sooner than usual."""
        with self.use() as connection:
            limit = timedelta(seconds=min(timeout or self._timeout, self._timeout))
            return fetch_limited_sync(connection, limit, query, params, self._afresh)

    @contextmanager
    def use(self) -> Iterator[Connection[Any]]:
        """The connection, exclusively. After an error that may have broken it, it is closed, and opened anew next time."""
        if not self._lock.acquire(timeout=2 * self._timeout):
            raise DatabaseUnavailable(f"the connection for the {self._part} has been busy for {2 * self._timeout:g} s")
        try:
            if self._connection is None or went_away(self._connection):
                self._drop()
                self._connection = self._connect(self._part)
                self._afresh = afresh_sync(self._connection, ours=True) if self._for_rows else ()
            connection = self._connection
            timer = threading.Timer(self._timeout, give_up_sync, [connection])
            timer.daemon = True
            timer.start()
            try:
                yield connection
            except RETRYABLE:
                self._drop()
                raise
            finally:
                timer.cancel()
        finally:
            self._lock.release()

    def cut(self) -> None:
        """Make the statement that is running fail, without waiting for it."""
        if self._connection is not None:
            give_up_aside(self._connection)

    def close(self) -> None:
        """Close the connection. One that is in use fails for its user, at once."""
        connection = self._connection
        if connection is not None and not self._lock.acquire(blocking=False):
            give_up_sync(connection)
            self._lock.acquire()
        elif connection is None:
            return
        self._drop()
        self._lock.release()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
