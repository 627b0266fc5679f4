"""The circuit breaker of a reconciler, or with `pause_by=` one per key (`keyed`): closed → open → probing → closed.

While it is closed, rows are handled as usual, and the judge may open it after a failed run or a refused outcome. While it is open,
no row (or no row of that key) is claimed until the pause is over. Then it is probing: one row at a time is tried. The first outcome
that is written closes the breaker, and a failure opens it again, for longer.

`reconcile/breaker.py` counts the failures that this process has seen. The database has the pauses and is the authority for the whole
fleet: every sweep reads them first. While a pause is being written, the breaker is `opening`, and further failures do not open it
again. When the database is away, the pause is not written, and the next sweep begins by asking the database.

Rows get back the attempts that they spent in the streak of failures that opened the breaker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable
from trueup.events import Events, ReconcilerPaused, ReconcilerResumed
from trueup.reconcile.breaker import MAX_KEYS, Breaker
from trueup.reconcile.claimed import ClaimedRow
from trueup.store.db.connect import RETRYABLE
from trueup.store.rows.reconcilers import Gate, Reconcilers
from trueup.store.rows.rows import Rows
from trueup.work.rows.beside import Beside, Changes
from trueup.work.rows.finisher import RowFinisher
from trueup.work.rows.held import RowInHand
from trueup.work.rows.keyed import Keyed, breaker_of
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.timetable import Timetable


@dataclass(frozen=True, slots=True)
class Opens:
    """The breaker opens, for as long as the handler has asked for, if it has."""

    why: str
    exactly: timedelta | None = None


@dataclass(eq=False)
class Breakers:
    _rows: Rows
    _log: Reconcilers
    _events: Events
    _finisher: RowFinisher
    _options: SweepOptions
    _timetable: Timetable
    _changes: Changes
    _beside: Beside
    opened: bool = False  # for all rows, since the sweep under way began

    def __post_init__(self) -> None:
        reconciler = self._rows.reconciler
        self._name = reconciler.name
        self._on_record = not self._options.shadow  # a shadow run of a live reconciler leaves no record
        self._keyed = None if reconciler.pause_by is None else Keyed(self._rows)
        self._breaker = breaker_of(reconciler)

    @property
    def probing(self) -> bool:
        return self._breaker.probing

    def of(self, held: RowInHand) -> Breaker:
        return self._breaker if self._keyed is None else self._keyed.of(held)

    def held_up(self, held: RowInHand) -> timedelta | None:
        """How long an open breaker keeps this row waiting; None when its handler may begin."""
        return None if self._keyed is None else self._keyed.held_up(held)

    async def heed(self, gate: Gate) -> None:
        """Follow the fleet's record: whether the breaker is to be probed, or another worker has closed it."""
        await self.heed_keys()
        if gate.pauses > 0:
            self._breaker.probing = True
        elif self._breaker.probing:
            self._breaker.close()

    async def heed_keys(self) -> None:
        if self._keyed is not None:
            self._keyed.heed(await self._log.pauses(self._name))

    def written(self, held: RowInHand) -> None:
        """The outcome of this row's handler was written: close its breaker if that is probing."""
        breaker = self.of(held)
        if breaker.probing and (held.started or 0.0) < breaker.opened_at:
            return  # it began before the others failed, so it says nothing about the present
        if breaker.written(held.row.key) and self._on_record:
            self._beside.start(self._close() if self._keyed is None else self._close_key(self._keyed, held))

    # -- open: stop trying for a while --------------------------------------------------------------------------------

    def open(self, held: RowInHand, breaker: Breaker, opens: Opens) -> bool:
        """Open the breaker of this row. True: it is open for all rows, and nothing more is to begin."""
        why, exactly = opens.why, opens.exactly
        if breaker.opening and exactly is None:
            return False
        spent = [row for row in breaker.open(elapsed()) if row.key != held.row.key]
        breaker.opening = True
        if self._keyed is None:
            self.opened = True
            if self._on_record:
                self._beside.start(self._rest(breaker, why, spent, exactly))
            return True
        key = self._keyed.key(held)
        self._keyed.opened(key, exactly or breaker.pause(0))
        if self._on_record:
            self._beside.start(self._rest_key(self._keyed, key, breaker, why, spent, exactly))
        return False

    async def _rest(self, breaker: Breaker, why: str, spent: list[ClaimedRow], exactly: timedelta | None) -> None:
        try:
            pause = exactly or breaker.pause((await self._log.gate(self._name)).pauses)
            if await self._log.rest(self._name, pause, why, extend=exactly is not None):
                self._events.emit(ReconcilerPaused(self._name, why, pause.total_seconds()))
            await self._refund(spent)
        except (*RETRYABLE, DatabaseUnavailable):
            return  # the next sweep begins by asking the database
        finally:
            breaker.opening = False
            self._changes.note()

    async def _rest_key(
        self, keyed: Keyed, key: str, breaker: Breaker, why: str, spent: list[ClaimedRow], exactly: timedelta | None
    ) -> None:
        try:
            known = {each.key: each.pauses for each in await self._log.pauses(self._name)}
            pause = exactly or breaker.pause(known.get(key, 0))
            keyed.opened(key, pause)
            if await self._log.rest_key(self._name, key, pause, why, extend=exactly is not None):
                self._events.emit(ReconcilerPaused(self._name, why, pause.total_seconds(), key))
            elif key not in known and len(known) >= MAX_KEYS and await self._log.rest(self._name, pause, why):
                self.opened = True
                self._events.emit(ReconcilerPaused(self._name, why, pause.total_seconds()))
            asyncio.get_running_loop().call_later(pause.total_seconds(), self._timetable.sweep_soon)
            await self._refund(spent)
        except (*RETRYABLE, DatabaseUnavailable):
            return
        finally:
            breaker.opening = False
            self._changes.note()

    async def _refund(self, spent: list[ClaimedRow]) -> None:
        """Give the rows of the streak their attempts back: the failures were not their fault."""
        if spent:
            await self._changes.until(lambda: not self._finisher.is_writing(spent))
            await self._rows.refund(spent)

    # -- closed: a row has worked again -------------------------------------------------------------------------------

    async def _close(self) -> None:
        try:
            if await self._log.work(self._name):
                self._events.emit(ReconcilerResumed(self._name))
        except (*RETRYABLE, DatabaseUnavailable):
            return  # then one more row probes it

    async def _close_key(self, keyed: Keyed, held: RowInHand) -> None:
        key = keyed.key(held)
        keyed.closed(key)
        self._timetable.sweep_soon()
        try:
            if await self._log.work_key(self._name, key):
                self._events.emit(ReconcilerResumed(self._name, key))
        except (*RETRYABLE, DatabaseUnavailable):
            return
