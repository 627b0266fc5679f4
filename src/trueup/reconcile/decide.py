"""Which move a row makes after its handler's run. Pure: the result of the statement says what really happened."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trueup.backoff import Retry
from trueup.jobs.failure import MAX_MESSAGE, Failure, clean, describe, type_name
from trueup.jobs.outcome import GiveUp
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.handler import outcome_of
from trueup.reconcile.outcome import Again, Delete, Failed, Outcome, Stay, To, Unchanged
from trueup.reconcile.reconciler import Reconciler

# A row is due again after the sweep that looked at it, even without a delay and on a clock that stands still.
MIN_DELAY = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Change:
    """held -> done, the row is written to; or -> resting (`rest_for`), if it would otherwise be claimed again at once."""

    outcome: To | Stay
    rest_for: timedelta | None


@dataclass(frozen=True, slots=True)
class Remove:
    """held -> done, the row is deleted."""

    outcome: Delete


@dataclass(frozen=True, slots=True)
class Rest:
    """held -> resting, nothing is written to the row. `succeeded` resets the count of attempts; otherwise this one is given back."""

    delay: timedelta
    succeeded: bool
    proposed: str | None = None


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """held -> resting, after a failed attempt. Not spent: the fault was of something that all rows need.

    With an outcome, that is written to the row as well.
    """

    delay: timedelta
    failure: Failure
    spend: bool = True
    outcome: To | Stay | None = None


@dataclass(frozen=True, slots=True)
class SetAside:
    """held -> quarantined."""

    reason: str
    failure: Failure


@dataclass(frozen=True, slots=True)
class Written:
    """held -> done, or -> resting: the handler has already written the outcome, in its own transaction."""

    outcome: To | Stay | Delete
    rest_for: timedelta | None


@dataclass(frozen=True, slots=True)
class Release:
    """held -> forgotten, as if it had never been claimed: this process stops, or could not begin.

    One whose handler had begun rests instead: the next attempt has the same idempotency key.
    """

    begun: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing may be written: the lease is gone."""


Move = Change | Remove | Written | Rest | RetryAfter | SetAside | Release | Lost
Ended = Outcome | BaseException


def decide(
    ended: Ended,
    row: ClaimedRow,
    reconciler: Reconciler,
    rng: random.Random,
    *,
    made: object = None,
    patient: bool = False,
    running_for: timedelta = timedelta(),
) -> Move:
    """Decide from how the handler ended.

    `made` is the row as the handler got it, for an `exhausted` that takes it; None when it could not be made. `running_for` is the time
    since the claim. `patient`: other rows fail for the same reason, so this one is not quarantined when it is out of attempts.
    """
    if isinstance(ended, BaseException):
        try:
            return _after_error(ended, row, reconciler, rng, made, patient, running_for)
        except KeyboardInterrupt:
            raise
        except BaseException as broken:  # a user's own class may raise when it is asked for its reason
            return _after_error(broken, row, reconciler, rng, made, patient, running_for)
    if reconciler.mode == "shadow":
        return Rest(max(reconciler.revisit, MIN_DELAY), succeeded=True, proposed=shown(ended))
    return _after_outcome(ended, row, reconciler)


def shown(outcome: Outcome) -> str:
    """An outcome as text for people, even if its values cannot be shown."""
    try:
        return clean(repr(outcome), MAX_MESSAGE)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        return f"{type(outcome).__name__}(… {type(broken).__name__} …)"


def _after_outcome(outcome: Outcome, row: ClaimedRow, reconciler: Reconciler) -> Move:
    match outcome:
        case To() | Stay():
            rest_for = _rest_for(outcome, row, reconciler)
            return Change(outcome, None if rest_for is None else max(rest_for, MIN_DELAY))
        case Delete():
            return Remove(outcome)
        case Unchanged():
            return Rest(max(reconciler.revisit, MIN_DELAY), succeeded=True)
        case Again(after=after):
            return Rest(max(after, MIN_DELAY), succeeded=False)


def _rest_for(outcome: To | Stay, row: ClaimedRow, reconciler: Reconciler) -> timedelta | None:
    """How long the row rests after this outcome; None when it no longer matches.

    Without a rest, a row that still matches would be claimed again and again, in a sweep that never ends.
    """
    selection = reconciler.selection
    if isinstance(outcome, To) and outcome.state not in selection.states:
        return None
    if selection.stale_for is not None:  # unless it is set to something else, the write itself refreshes it
        return reconciler.revisit if selection.table.changed_at in outcome.columns else None
    if selection.due_at is None or selection.due_at not in outcome.columns:
        return reconciler.revisit
    due_at = outcome.columns[selection.due_at]
    if not isinstance(due_at, datetime):
        return None
    due_in = (due_at if due_at.tzinfo is not None else due_at.replace(tzinfo=UTC)) - row.claimed_at
    if due_in > reconciler.every:
        return None  # a sweep will find it
    return due_in if due_in > timedelta() else reconciler.revisit


def refused(error: BaseException, retry: Retry) -> bool:
    """Whether no further attempt is made after this error, however many are left."""
    try:
        return isinstance(error, GiveUp) or not retry.worth_retrying(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return True


def _after_error(
    error: BaseException,
    row: ClaimedRow,
    reconciler: Reconciler,
    rng: random.Random,
    made: object,
    patient: bool,
    running_for: timedelta,
) -> Move:
    failure = Failure.of(error, row.attempt)
    if isinstance(error, GiveUp):
        return SetAside(error.reason, failure)
    retry = reconciler.retry
    try:
        worth_retrying = retry.worth_retrying(error)
        delay = max(retry.wait(row.attempt, rng), MIN_DELAY)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # a user's class may raise when it is compared, or be a Retry that raises
        return SetAside("its retry rule fails", Failure.of(broken, row.attempt))
    if row.spent:
        reason = (
            "its lease expired at the last attempt"
            if row.outlived
            else "the process that held it died at the last attempt"
        )
    elif not worth_retrying:
        reason = "not an error worth retrying"
    elif row.attempt >= retry.max_attempts and not patient:
        reason = "out of attempts"
    else:
        outcome = _meanwhile(error, delay, row, reconciler, made, running_for)
        return RetryAfter(delay, Failure.of(error, row.attempt), outcome=outcome)  # with what failed= has noted on it
    return _final(reason, error, failure, row, reconciler, made)


def _meanwhile(
    error: BaseException,
    delay: timedelta,
    row: ClaimedRow,
    reconciler: Reconciler,
    made: object,
    running_for: timedelta,
) -> To | Stay | None:
    """The outcome of `failed=`, written to the row until its next attempt. If `failed=` itself fails, the retry goes on without it."""
    failed = reconciler.failed
    if failed is None or reconciler.mode == "shadow":
        return None
    outcome: Any = failed
    if not isinstance(failed, To | Stay):
        try:
            outcome = failed(
                made, Failed(error, row.attempt, reconciler.retry.max_attempts, row.claimed_at + running_for + delay)
            )
        except KeyboardInterrupt:
            raise
        except BaseException as broken:
            error.add_note(f"and failed= raised {type_name(broken)}: {describe(broken)}")
            return None
    if isinstance(outcome, To) and outcome.state in reconciler.selection.states:
        return To(outcome.state, _still_stale(outcome, row, reconciler), then=outcome.then)
    if isinstance(outcome, Stay):
        return Stay(_still_stale(outcome, row, reconciler), then=outcome.then)
    return None


def _still_stale(outcome: To | Stay, row: ClaimedRow, reconciler: Reconciler) -> Mapping[str, Any]:
    """Its columns, with the time of change as it was: if a failure made the row fresh, its retry would come too late."""
    changed_at = reconciler.selection.table.changed_at
    if reconciler.selection.stale_for is None or changed_at is None or changed_at in outcome.columns:
        return outcome.columns
    return {**outcome.columns, changed_at: row.was_changed_at}


def _final(
    reason: str, error: BaseException, failure: Failure, row: ClaimedRow, reconciler: Reconciler, made: object
) -> Move:
    exhausted = reconciler.exhausted
    if exhausted is None or reconciler.mode == "shadow":
        return SetAside(reason, failure)
    try:
        if isinstance(exhausted, To | Stay | Delete):
            return _after_outcome(exhausted, row, reconciler)
        returned: Any = exhausted(made, Failed(error, row.attempt, reconciler.retry.max_attempts, None))
        if returned is None:
            return SetAside(reason, failure)
        return _after_outcome(outcome_of(returned, "exhausted="), row, reconciler)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        said = f"{reason}, and exhausted= failed: {type_name(broken)}: {describe(broken)}"
        return SetAside(clean(said, MAX_MESSAGE), failure)
