"""The sweeps that are not over. After a sweep has claimed its last row, rows are settled during the next one; then it is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable
from trueup.events import Events
from trueup.reconcile.counts import Count
from trueup.reconcile.decide import Move
from trueup.store.db.connect import RETRYABLE
from trueup.store.rows.reconcilers import Reconcilers
from trueup.work.registration import Holder
from trueup.work.rows.beside import Beside, Changes
from trueup.work.rows.held import RowInHand
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.pace import completed
from trueup.work.rows.sweep import Sweep
from trueup.work.rows.timetable import Timetable


@dataclass(eq=False)
class Sweeps:
    _name: str
    _log: Reconcilers
    _events: Events
    _holder: Holder
    _options: SweepOptions
    _timetable: Timetable
    _changes: Changes
    _beside: Beside
    _open: set[Sweep] = field(default_factory=set, init=False)

    @property
    def all_over(self) -> bool:
        return not self._open

    def begin(self, sweep: Sweep) -> None:
        self._open.add(sweep)

    def claimed_all(self, sweep: Sweep) -> None:
        """The sweep claims no more rows."""
        sweep.claiming = False
        self._conclude_if_over(sweep)

    def forget(self) -> None:
        """Stop waiting for rows in hand."""
        self._open.clear()

    def settled(self, held: RowInHand, move: Move, count: Count) -> None:
        """A row has its outcome."""
        sweep, held.state = held.sweep, "gone"
        rests_for = getattr(move, "delay", None) or getattr(move, "rest_for", None)
        if rests_for is not None:
            self._timetable.due_again(rests_for)
        setattr(sweep.counts, count, getattr(sweep.counts, count) + 1)
        if sweep.progress is not None:
            sweep.progress(sweep.counts)
        self._conclude_if_over(sweep)
        self._changes.note()

    def _conclude_if_over(self, sweep: Sweep) -> None:
        if not sweep.over or sweep not in self._open:
            return
        self._open.discard(sweep)
        if sweep.worth_telling:
            self._beside.start(self._conclude(sweep))

    async def _conclude(self, sweep: Sweep) -> None:
        assert sweep.began_at is not None
        try:
            if not self._options.shadow:
                await self._log.log(self._name, self._holder.id, sweep.began_at, sweep.counts)
        except (*RETRYABLE, DatabaseUnavailable):
            return  # the outcomes are written; DatabaseLost says why the sweep is not recorded
        self._events.emit(completed(self._name, sweep.counts, elapsed() - sweep.started))
