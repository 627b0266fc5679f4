from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from tests.jobs.claimed import claimed
from trueup.backoff import Retry
from trueup.errors import InvalidArguments
from trueup.jobs.decide import MIN_SNOOZE, Bury, Complete, Drop, Move, NoMove, Release, RetryAfter, SnoozeFor, decide
from trueup.jobs.failure import Failure
from trueup.jobs.outcome import (
    AskedToStop,
    Discard,
    Finished,
    GiveUp,
    Interrupted,
    JobTimeout,
    Misplaced,
    Outcome,
    Raised,
    Returned,
    Snooze,
    Unfit,
    Untrusted,
)

RETRY = Retry(max_attempts=3, first="1s", factor=2, cap="30s", give_up_on=(PermissionError,))
BOOM = ValueError("boom")


def move(outcome: Outcome, attempt: int = 1, retry: Retry = RETRY) -> Move:
    return decide(outcome, claimed(attempt=attempt, max_attempts=3), retry, random.Random(1))


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Returned("42"), Complete("42")),
        (Returned(), Complete(None)),
        (Finished(), NoMove()),
        (AskedToStop(), Drop("stopped")),
        (Interrupted(), Release("default", "")),
        (Misplaced("@send", "acme"), Release("@send", "acme")),
        (Raised(Snooze("5m")), SnoozeFor(timedelta(minutes=5))),
        (Raised(Snooze(timedelta())), SnoozeFor(MIN_SNOOZE)),
        (Raised(Discard("no such address")), Drop("no such address")),
        (Untrusted(), NoMove(lost=True)),
    ],
)
def test_some_outcomes_lead_to_the_same_move_at_every_attempt(outcome: Outcome, expected: Move, attempt: int) -> None:
    assert move(outcome, attempt) == expected


@pytest.mark.parametrize(("attempt", "delay"), [(1, 1), (2, 2)])
def test_an_error_before_the_last_attempt_is_retried_after_the_backoff(attempt: int, delay: int) -> None:
    assert move(Raised(BOOM), attempt) == RetryAfter(timedelta(seconds=delay), Failure.of(BOOM, attempt))


@pytest.mark.parametrize("attempt", [3, 4])
def test_an_error_at_the_last_attempt_is_buried(attempt: int) -> None:
    assert move(Raised(BOOM), attempt) == Bury("out of attempts", Failure.of(BOOM, attempt))


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GiveUp("the account is closed"), "the account is closed"),
        (PermissionError("no"), "not an error worth retrying"),
    ],
)
def test_errors_that_no_attempt_can_help_are_buried_at_once(error: Exception, reason: str, attempt: int) -> None:
    assert move(Raised(error), attempt) == Bury(reason, Failure.of(error, attempt))


def test_arguments_that_do_not_fit_are_buried_at_once_and_the_same_error_of_the_handlers_own_is_retried() -> None:
    error = InvalidArguments("send: to: is missing")
    assert move(Unfit(error)) == Bury("its arguments do not fit the job", Failure.of(error, 1))
    assert isinstance(move(Raised(error)), RetryAfter)


class Exiting(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise SystemExit(3)


class ExitsWhenCompared(Exception, metaclass=Exiting): ...


class ExitsWhenAsked(GiveUp):
    @property
    def reason(self) -> str:
        raise SystemExit(3)


def test_code_of_a_users_class_that_exits_does_not_end_the_worker() -> None:
    assert isinstance(move(Raised(ExitsWhenAsked())), RetryAfter)
    buried = move(Raised(BOOM), retry=Retry(retry_on=(ExitsWhenCompared,)))
    assert isinstance(buried, Bury)
    assert buried.reason == "its retry rule fails"


class ExitsWhenItWaits(Retry):
    def delay(self, attempt: int) -> timedelta:
        raise SystemExit(3)


class WaitsForNoDuration(Retry):
    def delay(self, attempt: int) -> Any:
        return 5


@pytest.mark.parametrize("retry", [ExitsWhenItWaits(), WaitsForNoDuration()], ids=repr)
def test_a_retry_policy_of_the_users_own_that_raises_buries_the_job(retry: Retry) -> None:
    buried = move(Raised(BOOM), retry=retry)
    assert isinstance(buried, Bury)
    assert buried.reason == "its retry rule fails"


@pytest.mark.parametrize("error", [JobTimeout(timedelta(seconds=5)), SystemExit(3), KeyboardInterrupt()])
def test_timeouts_and_exits_count_as_failed_attempts(error: BaseException) -> None:
    assert isinstance(move(Raised(error)), RetryAfter)


def test_the_jobs_own_number_of_attempts_counts_not_its_declarations() -> None:
    job = claimed(attempt=3, max_attempts=10)
    assert isinstance(decide(Raised(BOOM), job, RETRY, random.Random(1)), RetryAfter)


def test_jitter_comes_from_the_given_generator() -> None:
    retry = Retry(first="10s", jitter=True)
    first, again = (move(Raised(BOOM), retry=retry) for _ in range(2))
    assert first == again
    assert isinstance(first, RetryAfter)
    assert timedelta() < first.delay < timedelta(seconds=10)


@pytest.mark.parametrize("after", [timedelta.max, timedelta(days=-1), 5, None, "soon"], ids=repr)
def test_a_snooze_that_was_given_another_length_is_a_failed_attempt_if_that_cannot_be_stored(after: Any) -> None:
    snooze = Snooze("5m")
    snooze.after = after
    assert isinstance(move(Raised(snooze), attempt=1), RetryAfter)
    assert isinstance(move(Raised(snooze), attempt=3), Bury)


def test_a_snooze_must_be_a_duration() -> None:
    with pytest.raises(Exception, match="has no unit"):
        Snooze("5")
