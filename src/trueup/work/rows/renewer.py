"""Renews the leases of rows in hand, from a thread and a connection of its own, for all reconcilers of a worker.

A handler that blocks the event loop cannot stop this thread, and handlers that take every connection cannot starve it. Each
lease is renewed when a third of it has passed, and once soon after its handler has begun, so that the database knows which rows
were being handled if this process dies. The database is the authority; each row's `Trust` only makes this process give up earlier
than anybody else may begin. A handler that has used up its `timeout` is no longer renewed for: its row can be taken over when
the lease has passed, whatever the handler is still doing. A row whose lease in the user's own columns cannot be extended, because
the database refuses that, is found among the others, and keeps our own lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection

from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable
from trueup.events import Events, RenewalFailed, ServiceFailed
from trueup.jobs.failure import describe, type_name
from trueup.store.db.connect import RETRYABLE, give_up_aside, is_away
from trueup.store.db.pool import fetch_limited_sync
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.work.rows.held import Held, claims_apart
from trueup.work.rows.refusals import parts

LOOK_EVERY = 0.2  # seconds
MAX_AT_ONCE = 1_000

InHand = Callable[[], Iterable[Held]]
OnLost = Callable[[Sequence[Held]], None]


def _begun(held: Held, now: float) -> bool:
    """Whether its handler has run for a moment, and the database does not know yet that it has begun."""
    return not held.noted and held.started is not None and now - held.started >= LOOK_EVERY


class RowRenewer:
    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events
        self._kept: list[tuple[Rows, InHand, OnLost]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Connection[Any] | None = None

    def add(self, rows: Rows, in_hand: InHand, on_lost: OnLost) -> None:
        """`on_lost` is called on the renewer's thread."""
        self._kept.append((rows, in_hand, on_lost))

    def start(self) -> None:
        if self._kept and self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="trueup row renewer", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; waits a little, and then cuts its connection."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(timeout=1)
        if thread.is_alive() and self._connection is not None:
            give_up_aside(self._connection)
            thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_EVERY):
                try:
                    self.renew_once()
                except Exception as error:  # without this thread every lease would be lost, one after the other
                    self._events.emit(ServiceFailed("rows renew", type_name(error), describe(error)).because(error))
        finally:
            self._drop()

    def renew_once(self) -> None:
        """Renew what is due for it."""
        for rows, in_hand, on_lost in self._kept:
            third = rows.reconciler.lease_for.total_seconds() / 3
            renewed_before, now = rows.clock.elapsed() - third, elapsed()
            due = [
                held
                for held in in_hand()
                if (held.renewed <= renewed_before or _begun(held, now)) and held.begin_renewing(now)
            ]
            for start in range(0, len(due), MAX_AT_ONCE):
                part = due[start : start + MAX_AT_ONCE]
                try:
                    lost = self._renew(rows, part)
                finally:
                    for held in part:
                        held.renewing = False
                if lost:
                    on_lost(lost)

    def _renew(self, rows: Rows, due: Sequence[Held]) -> list[Held]:
        """Those whose lease is gone. When the database cannot be asked, none: their trust decides."""
        groups: dict[tuple[UUID, int], list[Held]] = {}
        for held, claim in zip(due, claims_apart(held.row for held in due), strict=True):
            groups.setdefault((held.row.holder, claim), []).append(held)
        return [held for (holder, _), group in groups.items() for held in self._renew_for(rows, holder, group)]

    def _renew_for(self, rows: Rows, holder: UUID, due: Sequence[Held], *, touch: bool = True) -> list[Held]:
        sent = rows.clock.elapsed()
        started = [held.started is not None for held in due]
        query, params = rows.renewal(holder, [held.row for held in due], started, touch=touch)
        try:
            if self._connection is None:
                self._connection = self._store.connect_sync("rows renew")
            # A trigger of the user's may take part in it, and must not make this thread hang.
            timeout = min(self._store.statement_timeout, rows.reconciler.lease_for / 6)
            answers = fetch_limited_sync(self._connection, timeout, query, params)
        except Exception as error:
            if not is_away(error) and touch and rows.renewal_writes:
                return self._renew_parts(rows, holder, due, error)
            self._drop()
            left = min(held.row.trust.left(rows.clock.elapsed()) for held in due)
            self._events.emit(RenewalFailed(str(holder), describe(error), round(left, 1)))
            if not isinstance(error, (*RETRYABLE, DatabaseUnavailable, psycopg.Error)):
                raise
            return []
        answered = {row[0]: row[1:] for row in answers}
        for held, begun in zip(due, started, strict=True):
            seen, answer = answered.get(held.row.key, (None, "gone"))
            if answer == "renewed":
                held.row.trust.renewed(sent)
                held.renewed, held.noted = sent, begun
                # A trigger of the user's may have counted our renewal as a change.
                held.row.seen = seen or held.row.seen
        return [held for held in due if held.row.key not in answered and held.keep and not held.writing]

    def _renew_parts(self, rows: Rows, holder: UUID, due: Sequence[Held], error: Exception) -> list[Held]:
        """One row that the database refuses must not cost the others their leases, nor itself the one that is ours."""
        if len(due) == 1:
            return self._renew_for(rows, holder, due, touch=False)
        return [held for part in parts(due, error) for held in self._renew_for(rows, holder, part)]

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
