"""Renews leases from a thread: the shape that the worker's lease, the leases of rows in hand and `app.lease` share.

A handler that blocks the event loop cannot stop the thread, and handlers that take every connection cannot starve it: each renewer has
a thread and a connection of its own (those of `app.lease` are in its backend). The database is the authority. The `Trust` beside
each lease only makes this process give up earlier than any other may begin; it counts from *before* a renewal is sent. When the
database is slow or unreachable, renewals are repeated until the trust is used up. The holder watches that deadline elsewhere (on the
event loop, or on a second thread), because this thread may be waiting for the network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from trueup.errors import DatabaseUnavailable
from trueup.events import Events, ServiceFailed
from trueup.store.db.connect import RETRYABLE
from trueup.store.db.thread_connection import ThreadConnection
from trueup.texts import describe, type_name

RETRY_AFTER = 0.5  # seconds between tries while renewals fail
NOT_RENEWED = (*RETRYABLE, DatabaseUnavailable, psycopg.Error)


class Renewing:
    """Subclasses say what one pass does."""

    def __init__(self, name: str, events: Events, connection: ThreadConnection | None = None) -> None:
        self.name = name
        self.connection = connection
        self._events = events
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> float | None:
        """Make one pass. Returns the seconds until the next one; None when nothing is left to renew."""
        raise NotImplementedError

    def start(self, first_in: float = 0.0) -> None:
        self._thread = self._aside(lambda: self._run(first_in))

    def stop(self) -> None:
        """End the thread. If it does not end soon, its statement is made to fail."""
        self._over.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(timeout=1)
        if thread.is_alive() and self.connection is not None:
            self.connection.cut()
            thread.join(timeout=5)

    def _aside(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work, name=f"trueup {self.name}", daemon=True)
        thread.start()
        return thread

    def _run(self, pause: float | None) -> None:
        try:
            while pause is not None and not self._over.wait(pause):
                try:
                    pause = self.run_once()
                except Exception as error:  # without this thread every lease would be lost, one after the other
                    self._events.emit(ServiceFailed(self.name, type_name(error), describe(error)).because(error))
                    pause = RETRY_AFTER
        finally:
            if self.connection is not None:
                self.connection.close()
