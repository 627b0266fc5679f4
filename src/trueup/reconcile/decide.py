"""What should become of a row after its handler's run. Pure: the statement that is sent then says what did."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

from trueup.errors import LostClaim
from trueup.jobs.failure import Failure
from trueup.jobs.outcome import GiveUp
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.outcome import Again, Delete, Outcome, Stay, To, Unchanged
from trueup.reconcile.reconciler import Reconciler


@dataclass(frozen=True, slots=True)
class Change:
    """held -> done, the row is written to; or -> resting, when it would be claimed again at once (`rest_for`)."""

    outcome: To | Stay
    rest_for: timedelta | None


@dataclass(frozen=True, slots=True)
class Remove:
    """held -> done, the row is deleted."""

    outcome: Delete


@dataclass(frozen=True, slots=True)
class Rest:
    """held -> resting, nothing is written to the row. `succeeded`: attempts begin anew; otherwise this one is given back."""

    delay: timedelta
    succeeded: bool
    proposed: str | None = None


@dataclass(frozen=True, slots=True)
class BackOff:
    """held -> resting, after a failed attempt. Not spent: the fault was of something that all rows need."""

    delay: timedelta
    failure: Failure
    spend: bool = True


@dataclass(frozen=True, slots=True)
class SetAside:
    """held -> quarantined."""

    reason: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class GiveBack:
    """held -> forgotten, as if it had never been claimed: this process stops, or could not begin."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing may be written: the lease is gone."""


Verdict = Change | Remove | Rest | BackOff | SetAside | GiveBack | Lost
Ended = Outcome | BaseException


def decide(
    ended: Ended, row: ClaimedRow, reconciler: Reconciler, rng: random.Random, *, made: object = None
) -> Verdict:
    """`made` is the row as the handler got it, for an `exhausted` that wants to see it."""
    if isinstance(ended, BaseException):
        return _after_error(ended, row, reconciler, rng, made)
    if reconciler.mode == "shadow":
        return Rest(reconciler.revisit, succeeded=True, proposed=repr(ended))
    return _after_outcome(ended, reconciler)


def _after_outcome(outcome: Outcome, reconciler: Reconciler) -> Verdict:
    match outcome:
        case To() | Stay():
            return Change(outcome, reconciler.revisit if still_chosen(outcome, reconciler) else None)
        case Delete():
            return Remove(outcome)
        case Unchanged():
            return Rest(reconciler.revisit, succeeded=True)
        case Again(after=after):
            return Rest(after, succeeded=False)


def still_chosen(outcome: To | Stay, reconciler: Reconciler) -> bool:
    """Whether the row would be claimed again at once after this: then it rests until it is to be revisited."""
    selection = reconciler.selection
    if isinstance(outcome, To) and outcome.state not in selection.states:
        return False
    if selection.stale_for is not None:
        return selection.table.changed_at in outcome.columns  # otherwise the write itself has refreshed it
    return selection.due_at not in outcome.columns


def _after_error(
    error: BaseException, row: ClaimedRow, reconciler: Reconciler, rng: random.Random, made: object
) -> Verdict:
    if isinstance(error, LostClaim):
        return Lost()
    failure = Failure.of(error, row.attempt)
    if isinstance(error, GiveUp):
        return SetAside(error.reason, failure)
    retry = reconciler.retry
    if not retry.worth_retrying(error):
        return _final("not an error worth retrying", error, failure, reconciler, made)
    if row.spent:
        return _final("the process that held it died at the last attempt", error, failure, reconciler, made)
    if row.attempt >= retry.max_attempts:
        return _final("out of attempts", error, failure, reconciler, made)
    return BackOff(retry.wait(row.attempt, rng), failure)


def _final(reason: str, error: BaseException, failure: Failure, reconciler: Reconciler, made: object) -> Verdict:
    exhausted = reconciler.exhausted
    if exhausted is None or reconciler.mode == "shadow":
        return SetAside(reason, failure)
    if not isinstance(exhausted, To | Stay | Delete):
        try:
            exhausted = exhausted(made, error)  # type: ignore[assignment]
        except Exception as broken:
            return SetAside(f"exhausted= raised {type(broken).__name__}", failure)
    if isinstance(exhausted, To | Stay | Delete):
        return _after_outcome(exhausted, reconciler)
    return SetAside(reason, failure)
