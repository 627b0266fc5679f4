"""Reports the outcomes of rows: an event for each outcome that was written, refused or lost, and a count in the row's sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trueup.events import (
    Events,
    RowChanged,
    RowClaimLost,
    RowConflict,
    RowProposed,
    RowQuarantined,
    RowReleased,
    RowRetried,
    RowUnchanged,
    RowUndone,
)
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Count
from trueup.reconcile.decide import Change, Lost, Move, Release, Remove, Rest, RetryAfter, SetAside, Written, shown
from trueup.reconcile.outcome import Delete, Outcome, Stay, To
from trueup.store.rows.rows import Rows
from trueup.work.rows.held import RowInHand
from trueup.work.rows.refusals import OutcomeContested, OutcomeUndone
from trueup.work.rows.sweeps import Sweeps
from trueup.work.writing import Pending


@dataclass(slots=True, eq=False)
class RowEnding(Pending):
    held: RowInHand
    move: Move
    duration: float = 0.0
    counts_as: Count | None = None  # if it is known before the statement is sent
    decided: Move | None = None  # the move that the database refused, if another one is written instead
    touch: bool = True  # whether what the claim wrote to the user's row may be undone; when that is refused, it stays
    busy: int = 0
    busy_since: float | None = None  # its row has been locked by another transaction since then
    # After a statement with several outcomes took too long, each is sent alone with a short time limit ("unknown"). One that exceeds it
    # is "slow".
    speed: Literal["usual", "unknown", "slow"] = "usual"

    @property
    def row(self) -> ClaimedRow:
        return self.held.row

    def failed(self, error: BaseException) -> None:
        Pending.failed(self, error)
        self.held.end_turn("write")


def size_of(move: Move) -> int:
    """The size of its texts. Its other values are small, or are not known before it is sent."""
    outcome, failure = getattr(move, "outcome", None), getattr(move, "failure", None)
    size = 0 if failure is None else len(failure.message) + len(failure.traceback)
    if isinstance(outcome, To | Stay):
        size += sum(len(value) for value in outcome.columns.values() if type(value) in (str, bytes))
    return size


class Reports:
    def __init__(self, rows: Rows, events: Events, sweeps: Sweeps) -> None:
        self._rows = rows
        self._events = events
        self._sweeps = sweeps

    def written(self, ending: RowEnding) -> None:
        """Emit the event of a written outcome, and count it."""
        row, move = ending.row, ending.move
        name, emit, wants = row.reconciler, self._events.emit, self._events.wants
        count: Count
        match move:
            case Change() | Remove() | Written():
                count = "changed"
                if wants(RowChanged):
                    emit(_changed(ending))
            case Rest(delay, _, proposed):
                count = "unchanged"
                if proposed is not None:
                    emit(RowProposed(name, row.key, proposed))
                elif wants(RowUnchanged):
                    emit(RowUnchanged(name, row.key, delay.total_seconds() * 1000))
            case RetryAfter(delay, failure):
                count = "retry"
                most = self._rows.reconciler.retry.max_attempts
                ms = delay.total_seconds() * 1000
                event = RowRetried(name, row.key, row.attempt, most, ms, failure.type, failure.message)
                emit(event.because(failure.error, failure.frames))
            case SetAside(reason, failure):
                count = "quarantined"
                aside = RowQuarantined(name, row.key, row.attempt, reason, failure.type, failure.message)
                emit(aside.because(failure.error, failure.frames))
            case Release():
                count = "unchanged"
                if ending.counts_as is None:
                    emit(RowReleased(name, row.key))
            case Lost():
                count = "lost"
        self._sweeps.settled(ending.held, ending.move, count if count == "quarantined" else ending.counts_as or count)

    def conflict(self, ending: RowEnding) -> None:
        row = ending.row
        self._events.emit(RowConflict(row.reconciler, row.key, shown_as(ending.move)))
        self._sweeps.settled(ending.held, ending.move, "conflict")

    def lost(self, ending: RowEnding, refused_by: str = "local") -> None:
        row = ending.row
        if isinstance(ending.move, Written):  # only its record was left, and another worker has settled it
            self.written(ending)
            return
        if ending.counts_as is None:
            by = "unknown" if ending.uncertain else refused_by
            self._events.emit(RowClaimLost(row.reconciler, row.key, row.term, by))
        self._sweeps.settled(ending.held, ending.move, ending.counts_as or "lost")

    def not_kept(self, row: ClaimedRow, move: Any, how: Literal["contested", "undone"]) -> Exception:
        """The error with which the row's attempt fails."""
        outcome, table = shown_as(move), self._rows.found.spec
        if how == "undone":
            hint = f"a trigger of table {table} keeps the row unchanged, so {outcome} was not written; check its BEFORE triggers"
            self._events.emit(RowUndone(row.reconciler, row.key, outcome))
            return OutcomeUndone(hint)
        hint = (
            f"{outcome} was not written: the row was changed while its handler ran, and still matches; "
            f"if no other program changes it, an AFTER trigger of table {table} does, at every write"
        )
        self._events.emit(RowConflict(row.reconciler, row.key, outcome))
        return OutcomeContested(hint)


def shown_as(move: Any) -> str:
    """A move or an outcome as text for people."""
    outcome = getattr(move, "outcome", move)
    return shown(outcome) if isinstance(outcome, Outcome) else type(move).__name__


def _changed(ending: RowEnding) -> RowChanged:
    row = ending.row
    outcome = ending.move.outcome if isinstance(ending.move, Change | Remove | Written) else None
    state_to = outcome.state if isinstance(outcome, To) else None if isinstance(outcome, Delete) else row.state
    return RowChanged(
        row.reconciler,
        row.key,
        type(outcome).__name__,
        row.state,
        state_to,
        row.attempt,
        row.lateness.total_seconds() * 1000,
        round(ending.duration * 1000, 3),
    )
