"""Decides what to write about rows whose outcome the database refuses. It writes nothing: the finisher sends the changed ending again."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Literal

from trueup.clock import elapsed
from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.jobs.failure import MAX_MESSAGE, Failure, clean
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Move, Remove, RetryAfter, SetAside, decide
from trueup.store.db.connect import is_away, may_pass
from trueup.store.rows.rows import Rows
from trueup.work.rows.handling import check_outcome, made_if_possible
from trueup.work.rows.refusals import OutcomeContested, OutcomeUndone, RowBusy
from trueup.work.rows.reports import Reports, RowEnding

if TYPE_CHECKING:
    from trueup.work.rows.hand import RowHand

# Seconds until the outcome of a row that is locked or being renewed is sent again; each pause is half as long again.
BUSY_PAUSE, MAX_BUSY_PAUSE = 0.05, 1.0
WAITS_SHARE = 5  # a try that waited for a lock is followed by a pause this many times as long
FULL_PAUSE = 1.0  # seconds until a failure that cannot be recorded (the disk is full, say) is sent again


class Failures:
    def __init__(self, rows: Rows, random: Random, reports: Reports) -> None:
        self._rows = rows
        self._random = random
        self._reports = reports
        self.hand: RowHand | None = None  # learns which outcomes of its handlers were written or refused

    def of(self, row: ClaimedRow, error: Exception, *, patient: bool = False, exhausted: bool = False) -> Move:
        """The move for a row after this failed attempt. It writes nothing to the user's row, except for the outcome of `exhausted=`, if
        that may be written. `patient`: as for `decide`."""
        reconciler = self._rows.reconciler
        made = made_if_possible(reconciler.handler.shape.make, row)
        move = decide(error, row, reconciler, self._random, made=made, patient=patient)
        if isinstance(move, Change | Remove):
            if exhausted and self._may_be_written(move):
                return move
            move = SetAside("out of attempts: its outcome was refused", Failure.of(error, row.attempt))
        if isinstance(move, SetAside) and isinstance(error, OutcomeUndone | OutcomeContested):
            return replace(move, reason=clean(f"out of attempts: {error}", MAX_MESSAGE))
        return _without_outcome(move)

    def _may_be_written(self, move: Change | Remove) -> bool:
        try:
            check_outcome(self._rows, move.outcome)
        except ConfigError:
            return False
        return True

    def expected(self, ending: RowEnding) -> bool:
        """Whether its row has failed, or was refused, before, and what is written may be refused again. A group has rows of one kind."""
        if ending.row.attempt <= 1 and not ending.repeats:
            return False
        return getattr(ending.move, "outcome", None) is not None or (ending.touch and self._rows.marks_rows)

    def refused(self, ending: RowEnding, error: Exception) -> bool:
        """The database refuses the outcome: choose what to write instead. False when there is no alternative left."""
        if ending.decided is None:
            ending.decided, ending.move = ending.move, self._instead(ending, error)
            if isinstance(ending.move, Change | Remove):
                ending.decided = None  # that of exhausted= may be refused, too
            elif isinstance(ending.decided, RetryAfter | SetAside):
                # The move is already about a failure; it is written without its outcome.
                ending.move = _without_outcome(ending.decided)
            ending.repeats = 0
        elif ending.touch and self._rows.marks_rows:
            ending.touch = False
        elif is_away(error) or may_pass(error):
            # Not even that can be written: the database refuses everything for the moment, and no row is to blame.
            ending.move, ending.decided, ending.touch, ending.repeats = ending.decided, None, True, 0
            ending.not_before = elapsed() + FULL_PAUSE
        else:
            return False
        return True

    def busy(self, ending: RowEnding, took: float = 0.0) -> None:
        """Another transaction has the row locked: it is tried again, for as long as a handler may run.

        `took`: seconds that the try has waited for the lock. The longer it waited the rarer the tries are, because others wait meanwhile.
        """
        now, timeout = elapsed(), self._rows.reconciler.timeout
        ending.busy_since = ending.busy_since or now
        pause = min(BUSY_PAUSE * 1.5**ending.busy, MAX_BUSY_PAUSE)
        ending.not_before = now + max(pause, took * WAITS_SHARE)
        ending.busy += 1
        if now - ending.busy_since >= timeout.total_seconds() and ending.touch:
            ending.touch = False
            what = "the row or what its triggers need"
            said = f"another session has locked {what} for {format_duration(timeout)}; its outcome was not written"
            failed = isinstance(ending.move, RetryAfter | SetAside)
            ending.move = _without_outcome(ending.move) if failed else self.of(ending.row, RowBusy(said))

    def not_kept(self, ending: RowEnding, how: Literal["contested", "undone"]) -> None:
        """A failed attempt: the outcome was not written, and the row still matches this reconciler."""
        error = self._reports.not_kept(ending.row, ending.move, how)
        if isinstance(ending.move, RetryAfter):
            ending.move = _without_outcome(ending.move)
        else:
            ending.move = self._instead(ending, error) if how == "undone" else self.of(ending.row, error)
            ending.counts_as = "undone" if how == "undone" else "conflict"
        if not isinstance(ending.move, Change | Remove):
            ending.decided = ending.decided or ending.move

    def _instead(self, ending: RowEnding, error: Exception) -> Move:
        """The move in place of a refused outcome."""
        held = ending.held
        worked, held.worked = held.worked, False
        if worked and self.hand is not None:
            return self.hand.refused(held, error, exhausted=True)
        return self.of(ending.row, error)

    def unfit(self, ending: RowEnding, error: Exception) -> None:
        """The table cannot be written to as it is now. The failure is recorded and spends no attempt."""
        move = ending.move
        if isinstance(move, Change | Remove):
            delay = self._rows.reconciler.retry.delay(1)
            move = RetryAfter(delay, Failure.of(error, ending.row.attempt), spend=False)
        ending.move, ending.touch = _without_outcome(move), False


def _without_outcome(move: Move) -> Move:
    return replace(move, outcome=None) if isinstance(move, RetryAfter) else move
