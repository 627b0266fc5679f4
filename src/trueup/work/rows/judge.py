"""Decides what becomes of a row after its handler has run, and whether the circuit breaker opens. Nothing is written here.

`Judge.of` returns the move about the row and, beside it, whether the circuit breaker opens; `Breakers` does that.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta

from trueup.errors import ConfigError, LostClaim
from trueup.jobs.failure import Failure, describe, type_name
from trueup.reconcile.breaker import MAX_EVERYBODY, Breaker
from trueup.reconcile.decide import Change, Ended, Lost, Move, RetryAfter, SetAside, decide, refused
from trueup.reconcile.outcome import Again
from trueup.store.rows.rows import Rows
from trueup.work.rows.breakers import Breakers, Opens
from trueup.work.rows.handling import check_outcome
from trueup.work.rows.held import Handled, RowInHand
from trueup.work.rows.refusals import MAX_REPEATS

PATIENT_FROM = 2  # failures in a row for the same reason: more than one row has it


@dataclass(frozen=True, slots=True)
class Judged:
    move: Move
    breaker: Breaker
    opens: Opens | None = None  # the breaker


class Judge:
    def __init__(self, rows: Rows, rng: random.Random, breakers: Breakers) -> None:
        self._rows = rows
        self._reconciler = rows.reconciler
        self._random = rng
        self._breakers = breakers
        # Keys whose transactions the database has rolled back, one after the other.
        self._unspent: Counter[str] = Counter()

    def of(self, held: RowInHand, handled: Handled) -> Judged:
        """After a handler's run."""
        row, error = held.row, handled.ended
        breaker = self._breakers.of(held)
        if handled.unspent and isinstance(error, BaseException) and self._unspent[row.key] < MAX_REPEATS:
            self._unspent[row.key] += 1
            return Judged(
                RetryAfter(self._reconciler.retry.delay(1), Failure.of(error, row.attempt), spend=False), breaker
            )
        self._unspent.pop(row.key, None)
        if not isinstance(error, BaseException):
            return Judged(self._decide(held, handled), breaker, _after_success(error, breaker))
        if isinstance(error, LostClaim) and row.trust.left(self._rows.clock.elapsed()) <= 0:
            return Judged(Lost(), breaker)
        # A LostClaim while the lease is trusted is a failure: if the row is lost, the fence refuses what is written, and a handler
        # may have raised it for something else.
        if isinstance(error, LostClaim) or row.spent or not breaker.counts(row.key):
            return Judged(self._decide(held, handled), breaker)
        kind, said = type_name(error), f"{describe(error):.200}"
        if refused(error, self._reconciler.retry):
            opens = breaker.refused(row.key)
            why = Opens(f"had row after row refused, the last one with {kind}: {said}") if opens else None
            return Judged(self._decide(held, handled), breaker, why)
        if breaker.failed(row.key, kind):
            move = RetryAfter(breaker.pause(0), Failure.of(error, row.attempt), spend=False)
            return Judged(move, breaker, Opens(f"failed over and over with {kind}: {said}"))
        if breaker.streak < PATIENT_FROM:
            breaker.spent.clear()
        breaker.spent.append(row)
        patient = breaker.streak >= PATIENT_FROM and breaker.others
        return Judged(self._decide(held, handled, patient=patient), breaker)

    def of_refusal(self, held: RowInHand, error: Exception) -> tuple[Breaker, Opens | None]:
        """After PostgreSQL has refused to claim the row, or to write its outcome.

        A row that has failed before opens nothing: those that never work are due again together, and without the others.
        """
        breaker, kind = self._breakers.of(held), type_name(error)
        counts = breaker.counts(held.row.key) and (breaker.probing or held.row.attempt <= 1)
        opens = counts and breaker.unwritten(held.row, kind)
        said = f"{describe(error):.200}"
        return breaker, Opens(
            f"had row after row refused by PostgreSQL, the last one with {kind}: {said}"
        ) if opens else None

    def _decide(self, held: RowInHand, handled: Handled, *, patient: bool = False) -> Move:
        row, running_for = held.row, timedelta(seconds=self._rows.clock.elapsed() - held.claimed)
        move = decide(
            handled.ended,
            row,
            self._reconciler,
            self._random,
            made=handled.made,
            patient=patient,
            running_for=running_for,
        )
        if isinstance(handled.ended, BaseException) and isinstance(move, Change | RetryAfter) and move.outcome:
            try:  # exhausted= and failed= may raise, too
                check_outcome(self._rows, move.outcome)
            except ConfigError as wrong:
                if isinstance(move, RetryAfter):
                    return replace(move, outcome=None)
                reason = f"out of attempts, and the outcome of exhausted= is invalid: {wrong}"
                return SetAside(reason, Failure.of(handled.ended, row.attempt))
        return move


def _after_success(ended: Ended, breaker: Breaker) -> Opens | None:
    if isinstance(ended, Again) and ended.everybody:
        return Opens("was asked to wait by a handler", min(ended.after, MAX_EVERYBODY))
    if not breaker.probing:
        breaker.spent.clear()
        breaker.returned()
    return None
