"""Renews the leases of rows in hand, for all reconcilers of a worker; `work/renewing.py` is the shape.

Each lease is renewed when a third of it has passed, and once soon after its handler has begun, so that the database knows which rows
were being handled if this process dies. The lease is no longer renewed when a handler has used up its `timeout`: another worker can
then take the row over, whatever the handler still does. If the database refuses to extend a lease in the user's own columns
(`lease_columns=`), that row is found among the others and keeps its lease in trueup's table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from trueup.clock import elapsed
from trueup.events import Events, RenewalFailed
from trueup.store.db.connect import TIMED_OUT, unanswered
from trueup.store.db.thread_connection import ThreadConnection
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.texts import describe
from trueup.work.renewing import NOT_RENEWED, Renewing
from trueup.work.rows.held import RowInHand, claims_apart
from trueup.work.writing import parts

LOOK_EVERY = 0.2  # seconds
MAX_AT_ONCE = 1_000

InHand = Callable[[], Iterable[RowInHand]]
OnLost = Callable[[Sequence[RowInHand]], None]


def _begun(held: RowInHand, now: float) -> bool:
    """Whether its handler has run for a moment and the database does not have a record that it began."""
    return not held.noted and held.started is not None and now - held.started >= LOOK_EVERY


class RowRenewer(Renewing):
    connection: ThreadConnection

    def __init__(self, store: Store, events: Events) -> None:
        connection = store.thread_connection("rows renew", store.statement_timeout, for_rows=True)
        super().__init__("rows renew", events, connection)
        self._kept: list[tuple[Rows, InHand, OnLost]] = []

    def add(self, rows: Rows, in_hand: InHand, on_lost: OnLost) -> None:
        """`on_lost` is called on the renewer's thread."""
        self._kept.append((rows, in_hand, on_lost))

    def start(self, first_in: float = LOOK_EVERY) -> None:
        """Does nothing when it runs already. May be called again after `stop`."""
        if self._kept and self._thread is None:
            self._over.clear()
            super().start(first_in)

    def run_once(self) -> float:
        self.renew_once()
        return LOOK_EVERY

    def renew_once(self) -> None:
        """Renew the leases that are due."""
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
                        held.end_turn("renewal")
                if lost:
                    on_lost(lost)

    def _renew(self, rows: Rows, due: Sequence[RowInHand]) -> list[RowInHand]:
        """Renew these leases. Returns the rows whose lease is gone; none if the database cannot be asked, because then trust decides."""
        groups: dict[tuple[UUID, int], list[RowInHand]] = {}
        for held, claim in zip(due, claims_apart(held.row for held in due), strict=True):
            groups.setdefault((held.row.holder, claim), []).append(held)
        return [held for (holder, _), group in groups.items() for held in self._renew_for(rows, holder, group)]

    def _renew_for(self, rows: Rows, holder: UUID, due: Sequence[RowInHand], *, touch: bool = True) -> list[RowInHand]:
        sent = rows.clock.elapsed()
        started = [held.started is not None for held in due]
        query, params = rows.renewal(holder, [held.row for held in due], started, touch=touch)
        try:
            # A user's trigger may run in this statement, and must not block this thread.
            answers = self.connection.fetch(query, params, rows.reconciler.lease_for.total_seconds() / 6)
        except Exception as error:
            if touch and rows.renewal_writes:
                return self._renew_parts(rows, holder, due, error, sent)
            left = min(held.row.trust.left(rows.clock.elapsed()) for held in due)
            self._events.emit(RenewalFailed(str(holder), describe(error), round(left, 1)))
            if not isinstance(error, NOT_RENEWED):
                raise
            return []
        answered = {row[0]: row[1:] for row in answers}
        for held, begun in zip(due, started, strict=True):
            seen, answer = answered.get(held.row.key, (None, "gone"))
            if answer == "renewed":
                held.row.trust.renewed(sent)
                held.renewed, held.noted = sent, begun
                # A user's trigger may have changed the version column at the renewal.
                held.row.seen = seen or held.row.seen
        return [held for held in due if held.row.key not in answered and held.keep and held.turn != "write"]

    def _renew_parts(
        self, rows: Rows, holder: UUID, due: Sequence[RowInHand], error: Exception, sent: float
    ) -> list[RowInHand]:
        """After a refusal, renew in halves: the other rows keep their leases, and the culprit keeps its lease in trueup's table.

        After a long wait, or after a renewal that ended its connection, the leases in trueup's table are renewed first. The user's
        columns then get a bounded time in all, or none while another session has locked the whole table.
        """
        if len(due) == 1:
            return self._renew_for(rows, holder, due, touch=False)
        if not (isinstance(error, TIMED_OUT) or unanswered(error)):
            return [held for part in parts(due, error) for held in self._renew_for(rows, holder, part)]
        lost = self._renew_for(rows, holder, due, touch=False)
        if isinstance(error, TIMED_OUT):
            query, params = rows.asking_for_a_lock()
            if self.connection.fetch(query, params, rows.reconciler.lease_for.total_seconds() / 6)[0][0]:
                return lost
        renewed = [held for held in due if held.renewed >= sent]
        left = deque(parts(renewed, error) if renewed else [])
        until = elapsed() + rows.reconciler.lease_for.total_seconds() / 6
        while left and elapsed() < until:
            lost += self._renew_for(rows, holder, left.popleft())
        return lost
