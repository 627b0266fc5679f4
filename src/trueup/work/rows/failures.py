"""What becomes of rows whose outcome the database does not take. Nothing here is written: an ending is changed, and sent again."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Literal

from trueup.clock import elapsed
from trueup.durations import format_duration
from trueup.jobs.failure import MAX_MESSAGE, Failure, clean
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Move, Remove, RetryAfter, SetAside, decide
from trueup.store.db.connect import is_away, may_pass
from trueup.store.rows.rows import Rows
from trueup.work.rows.ending import Ending
from trueup.work.rows.refusals import OutcomeContested, OutcomeUndone, RowBusy
from trueup.work.rows.reports import Reports

# Seconds until a row that is locked, or that is being renewed, is tried again; then half as long again each time.
BUSY_PAUSE, MAX_BUSY_PAUSE = 0.05, 1.0
WAITS_SHARE = 5  # a row whose tries wait for a lock rests this many times as long
FULL_PAUSE = 1.0  # seconds until a row is tried again whose failure cannot be written either: the disk is full, say


class Failures:
    def __init__(self, rows: Rows, random: Random, reports: Reports) -> None:
        self._rows = rows
        self._random = random
        self._reports = reports

    def of(self, row: ClaimedRow, error: Exception) -> Move:
        """What becomes of a row for which this is a failed attempt. Nothing more is written to it."""
        move = decide(error, row, self._rows.reconciler, self._random)
        if isinstance(move, Change | Remove):  # exhausted= may be what was refused
            move = SetAside("out of attempts: its outcome was refused", Failure.of(error, row.attempt))
        if isinstance(move, SetAside) and isinstance(error, OutcomeUndone | OutcomeContested):
            return replace(move, reason=clean(f"out of attempts: {error}", MAX_MESSAGE))
        return _without_outcome(move)

    def expected(self, ending: Ending) -> bool:
        """Whether its row has failed, or was refused, before, and what is written may be refused again. A group has rows of one kind."""
        if ending.row.attempt <= 1 and not ending.repeats:
            return False
        return getattr(ending.move, "outcome", None) is not None or (ending.touch and self._rows.marks_rows)

    def refused(self, ending: Ending, error: Exception) -> bool:
        """The database refuses it: what is to be written about the row instead. False when nothing is left that it may take."""
        if ending.decided is None:
            ending.decided, ending.move = ending.move, self.of(ending.row, error)
            if isinstance(ending.decided, RetryAfter | SetAside):
                # It says what failed before; only its outcome is left out.
                ending.move = _without_outcome(ending.decided)
            ending.repeats = 0
        elif ending.touch and self._rows.marks_rows:
            ending.touch = False
        elif is_away(error) or may_pass(error):
            # Not even that: so the database refuses everything for the moment, and no row is to blame.
            ending.move, ending.decided, ending.touch, ending.repeats = ending.decided, None, True, 0
            ending.not_before = elapsed() + FULL_PAUSE
        else:
            return False
        return True

    def busy(self, ending: Ending, took: float = 0.0) -> None:
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

    def not_kept(self, ending: Ending, how: Literal["contested", "undone"]) -> None:
        """An outcome that was not written although the row is still one for this reconciler: a failed attempt."""
        error = self._reports.not_kept(ending.row, ending.move, how)
        if isinstance(ending.move, RetryAfter):
            ending.move = _without_outcome(ending.move)
        else:
            ending.move = self.of(ending.row, error)
            ending.counts_as = "undone" if how == "undone" else "conflict"
        ending.decided = ending.decided or ending.move

    def unfit(self, ending: Ending, error: Exception) -> None:
        """Nothing can be written to the table as it is now. That is noted, and costs no attempt."""
        move = ending.move
        if isinstance(move, Change | Remove):
            delay = self._rows.reconciler.retry.delay(1)
            move = RetryAfter(delay, Failure.of(error, ending.row.attempt), spend=False)
        ending.move, ending.touch = _without_outcome(move), False


def _without_outcome(move: Move) -> Move:
    return replace(move, outcome=None) if isinstance(move, RetryAfter) else move
