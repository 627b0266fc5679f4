"""Which move a job makes after its handler's run. Pure: the result of the statement says what really happened."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta

from trueup.backoff import Retry
from trueup.durations import parse_duration
from trueup.jobs.exhausted import TRIES, Exhausting
from trueup.jobs.failure import Failure
from trueup.jobs.job import ClaimedJob
from trueup.jobs.outcome import (
    AskedToStop,
    Discard,
    Finished,
    GiveUp,
    Interrupted,
    Misplaced,
    Outcome,
    Over,
    Raised,
    Returned,
    RunSkipped,
    Snooze,
    Undone,
    Unfit,
    Untrusted,
)

# A transaction that the database undid is tried again for this long without spending an attempt, after a short random pause.
FREE_RETRIES_FOR = timedelta(minutes=1)
FREE_RETRY_AFTER = (0.05, 0.5)  # seconds


@dataclass(frozen=True, slots=True)
class Complete:
    result: str | None


@dataclass(frozen=True, slots=True)
class RetryAfter:
    delay: timedelta
    failure: Failure


@dataclass(frozen=True, slots=True)
class SnoozeFor:
    delay: timedelta


@dataclass(frozen=True, slots=True)
class Bury:
    reason: str
    failure: Failure | None  # None: it is stored already
    also: Failure | None = None  # of `exhausted=`

    @property
    def failures(self) -> list[Failure]:
        return [each for each in (self.failure, self.also) if each is not None]


@dataclass(frozen=True, slots=True)
class Defer:
    """Only the call of `exhausted=` is left; a later claim makes it."""

    delay: timedelta
    exhausting: Exhausting
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Buried:
    """Nothing to write: the job was buried in the same transaction as the writes of `exhausted=`."""

    bury: Bury


@dataclass(frozen=True, slots=True)
class Drop:
    reason: str
    tick_skipped: str | None = None  # why the tick of this run counts as skipped


@dataclass(frozen=True, slots=True)
class Release:
    lane: str
    key: str


@dataclass(frozen=True, slots=True)
class NoMove:
    """Nothing to write: it is written already, or another worker holds the job."""

    lost: bool = False


Move = Complete | RetryAfter | SnoozeFor | Bury | Defer | Drop | Release | Buried | NoMove

MIN_SNOOZE = timedelta(milliseconds=1)  # or a handler that always snoozes for zero seconds would keep a worker busy
DONE_WITHOUT_RESULT = Complete(None)


def decide(outcome: Outcome, job: ClaimedJob, retry: Retry, rng: random.Random) -> Move:
    match outcome:
        case Returned():
            return Complete(outcome.result) if outcome.result is not None else DONE_WITHOUT_RESULT
        case Finished():
            return NoMove()
        case Untrusted():
            return NoMove(lost=True)
        case Over(reason):
            return Bury(reason, None)
        case AskedToStop():
            return Drop("stopped")
        case Interrupted():
            return Release(job.lane, job.key)
        case Misplaced(lane, key):
            return Release(lane, key)
        case Unfit(error):
            failure = Failure.of(error, job.attempt)
            error.__traceback__ = None
            return Bury("its arguments do not fit the job", failure)
        case Undone() if job.snoozed_for < FREE_RETRIES_FOR:
            return SnoozeFor(timedelta(seconds=rng.uniform(*FREE_RETRY_AFTER)))
        case Raised(error) | Undone(error):
            try:
                move = _after_error(error, job, retry, rng)
            except KeyboardInterrupt:
                raise
            except BaseException as broken:  # a user's own class may raise when it is asked for its reason
                error = broken
                move = _after_error(broken, job, retry, rng)
            # The move has everything that is stored. The frames of its traceback hold the error, which would be a cycle per failure.
            error.__traceback__ = None
            return move


def _after_error(error: BaseException, job: ClaimedJob, retry: Retry, rng: random.Random) -> Move:
    match error:
        case Snooze(after=after):
            return SnoozeFor(max(parse_duration(after), MIN_SNOOZE))
        case RunSkipped(reason=reason, why=why):
            return Drop(reason, why)
        case Discard(reason=reason):
            return Drop(reason)
    # Including LostClaim: if the claim is lost, the fence refuses the move; the handler may have raised it for another claim.
    failure = Failure.of(error, job.attempt)
    try:
        worth_retrying = retry.worth_retrying(error)
        delay = max(retry.wait(job.attempt, rng), timedelta())
    except KeyboardInterrupt:
        raise
    except BaseException as broken:  # a user's class may raise when it is compared, or be a Retry that raises
        return Bury("its retry rule fails", Failure.of(broken, job.attempt))
    match error:
        case GiveUp(reason=reason):
            return Bury(reason, failure)
    if not worth_retrying:
        return Bury("not an error worth retrying", failure)
    if job.attempt >= job.max_attempts:
        return Bury("out of attempts", failure)
    return RetryAfter(delay, failure)


def after_exhausted_failed(error: BaseException, job: ClaimedJob, bury: Bury, rng: random.Random) -> Move:
    """`exhausted=` raised, timed out or was refused: call it again later; after the last attempt bury the job without it."""
    exhausting = exhausting_of(job, bury)
    failure = Failure.of(error, job.attempt)
    said = f"{bury.reason}, and exhausted= failed: {failure.type}: {failure.message}"
    failure = replace(failure, message=f"in exhausted=: {failure.message}")
    error.__traceback__ = None
    tries = exhausting.tries + 1
    if tries >= TRIES.max_attempts or isinstance(error, GiveUp):
        return Bury(said, bury.failure, failure)
    failures = (failure,) if bury.failure is None else (bury.failure, failure)
    return Defer(TRIES.wait(tries, rng), replace(exhausting, tries=tries), failures)


def exhausted_elsewhere(job: ClaimedJob, bury: Bury) -> Defer:
    """This worker is stopping: another one calls `exhausted=` at once."""
    return Defer(timedelta(), exhausting_of(job, bury), () if bury.failure is None else (bury.failure,))


def exhausting_of(job: ClaimedJob, bury: Bury) -> Exhausting:
    known = Exhausting.of(job)
    if known is not None:
        return known
    assert bury.failure is not None
    return Exhausting(bury.reason, bury.failure.type, bury.failure.message)
