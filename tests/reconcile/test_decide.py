"""What should become of a row: pure, no database, no clock."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from trueup import Again, Delete, GiveUp, LostClaim, Retry, Stay, To, Unchanged
from trueup.jobs.failure import Failure
from trueup.leases.trust import Trust
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import MIN_DELAY, Change, Move, Remove, Rest, RetryAfter, SetAside, decide
from trueup.reconcile.handler import RowHandler
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.selection import Selection
from trueup.reconcile.table import TableSpec

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
THINGS = TableSpec.of("things", "id", "state", "changed_at")


def row(attempt: int = 1, *, spent: bool = False) -> ClaimedRow:
    return ClaimedRow(
        "fix", uuid4(), "7", ("7",), 3, attempt, spent, False, "new", None, None, NOON - HOUR, NOON, {}, Trust(HOUR, 0)
    )


def reconciler(*states: str, stale_for: Any = None, due_at: str | None = None, **options: Any) -> Reconciler:
    selection = Selection.of("fix", THINGS, states or ("new",), stale_for=stale_for, due_at=due_at)
    return Reconciler.of("fix", selection, RowHandler(lambda row: None, "fix"), {"every": "1h", **options})


def decided(ended: Any, of: ClaimedRow | None = None, by: Reconciler | None = None, **more: Any) -> Move:
    return decide(ended, of or row(), by or reconciler(), random.Random(1), **more)


# -- outcomes -------------------------------------------------------------------------------------------------------------


def test_a_row_that_leaves_its_states_is_done() -> None:
    assert decided(To("done")) == Change(To("done"), None)


def test_a_row_that_stays_chosen_rests_until_it_is_to_be_revisited() -> None:
    by = reconciler("new", "newer", revisit="5m")
    assert decided(Stay(), by=by) == Change(Stay(), timedelta(minutes=5))
    assert decided(To("newer"), by=by) == Change(To("newer"), timedelta(minutes=5))


def test_a_row_whose_time_of_change_is_refreshed_is_done() -> None:
    by = reconciler(stale_for="10m")
    assert decided(Stay(n=1), by=by) == Change(Stay(n=1), None)
    own = Stay(changed_at=NOON - HOUR)
    assert decided(own, by=by) == Change(own, HOUR)


@pytest.mark.parametrize(
    ("due_at", "rest_for"),
    [
        (NOON - HOUR, timedelta(minutes=5)),
        (NOON, timedelta(minutes=5)),
        (NOON + timedelta(seconds=10), timedelta(seconds=10)),
        ((NOON + timedelta(seconds=10)).replace(tzinfo=None), timedelta(seconds=10)),
        (NOON + HOUR, HOUR),
        (NOON + HOUR + MIN_DELAY, None),
        (None, None),
        ("2026-06-01", None),
    ],
)
def test_a_row_that_is_due_again_is_left_until_then(due_at: Any, rest_for: timedelta | None) -> None:
    outcome = Stay(due_at=due_at)
    assert decided(outcome, by=reconciler(due_at="due_at", revisit="5m")) == Change(outcome, rest_for)


def test_delete_removes_and_nothing_rests() -> None:
    assert decided(Delete()) == Remove(Delete())
    assert decided(Unchanged(), by=reconciler(revisit="5m")) == Rest(timedelta(minutes=5), succeeded=True)
    assert decided(Again("30s")) == Rest(timedelta(seconds=30), succeeded=False)


def test_no_row_is_due_again_in_the_sweep_that_looked_at_it() -> None:
    by = reconciler(revisit="0s", retry=Retry(first="0s"))
    assert decided(Unchanged(), by=by) == Rest(MIN_DELAY, succeeded=True)
    assert decided(Again("0s"), by=by) == Rest(MIN_DELAY, succeeded=False)
    assert decided(Stay(), by=by) == Change(Stay(), MIN_DELAY)
    move = decided(ValueError(), by=by)
    assert isinstance(move, RetryAfter)
    assert move.delay == MIN_DELAY


def test_in_shadow_an_outcome_is_only_proposed() -> None:
    move = decided(To("done", n=1), by=reconciler(mode="shadow"))
    assert move == Rest(HOUR, succeeded=True, proposed="To('done', n=1)")


# -- errors ---------------------------------------------------------------------------------------------------------------


def test_a_failure_backs_off_as_retry_says() -> None:
    by = reconciler(retry=Retry(max_attempts=4, first="10s", factor=3, cap="1m"))
    delays = []
    for attempt in (1, 2, 3):
        move = decided(ValueError("boom"), row(attempt), by)
        assert isinstance(move, RetryAfter)
        assert move.spend
        assert move.failure.attempt == attempt
        delays.append(move.delay.total_seconds())
    assert delays == [10, 30, 60]


def test_the_last_failed_attempt_is_set_aside() -> None:
    error = ValueError("boom")
    assert decided(error, row(4)) == SetAside("out of attempts", Failure.of(error, 4))


def test_somebody_patient_does_not_call_the_last_attempt_the_last() -> None:
    move = decided(ValueError("boom"), row(4), by=reconciler(exhausted=To("dead")), patient=True)
    assert isinstance(move, RetryAfter)
    assert move.spend


@pytest.mark.parametrize("patient", [False, True])
def test_what_is_not_worth_retrying_is_final_at_once(patient: bool) -> None:
    by = reconciler(retry=Retry(give_up_on=(KeyError,)))
    move = decided(KeyError("x"), by=by, patient=patient)
    assert isinstance(move, SetAside)
    assert move.reason == "not an error worth retrying"
    given_up = decided(GiveUp("gone"), patient=patient)
    assert isinstance(given_up, SetAside)
    assert given_up.reason == "gone"


def test_a_raised_lost_claim_is_a_failure_because_only_the_fence_knows() -> None:
    move = decided(LostClaim("the lease of another thing"), row(1))
    assert isinstance(move, RetryAfter)
    assert move.spend


def test_a_row_whose_process_died_at_its_last_attempt_is_final() -> None:
    by = reconciler(retry=Retry(retry_on=(ConnectionError,)))
    move = decided(RuntimeError("died"), row(2, spent=True), by)
    assert isinstance(move, SetAside)
    assert move.reason == "the process that held it died at the last attempt"


@pytest.mark.parametrize("exhausted", [To("dead", n=1), Stay(n=1), Delete(), lambda row, error: To("dead", n=row)])
def test_exhausted_takes_the_place_of_quarantine(exhausted: Any) -> None:
    move = decided(ValueError(), row(4), reconciler(exhausted=exhausted), made=5)
    expected = exhausted if not callable(exhausted) else To("dead", n=5)
    assert isinstance(move, Change | Remove)
    assert move.outcome == expected


def test_exhausted_may_say_that_it_is_not_yet_time() -> None:
    by = reconciler(exhausted=lambda row, error: Again("1d"))
    assert decided(ValueError(), row(4), by) == Rest(timedelta(days=1), succeeded=False)


@pytest.mark.parametrize("returned", ["junk", To, 7, ValueError("x")])
def test_exhausted_that_returns_junk_quarantines(returned: Any) -> None:
    move = decided(ValueError(), row(4), reconciler(exhausted=lambda row, error: returned))
    assert isinstance(move, SetAside)
    assert "out of attempts, and exhausted= failed: TypeError: exhausted= returned" in move.reason


class Panic(BaseException):
    """Of a foreign runtime."""


class PanicsWhenAsked(GiveUp):
    @property
    def reason(self) -> str:
        raise Panic("no reason")


def test_a_give_up_whose_reason_raises_is_a_failed_attempt() -> None:
    by = reconciler(retry=Retry(max_attempts=2))
    assert isinstance(decided(PanicsWhenAsked(), row(1), by), RetryAfter)
    aside = decided(PanicsWhenAsked(), row(2), by)
    assert isinstance(aside, SetAside)
    assert aside.failure.type.endswith("Panic")


def test_exhausted_that_is_a_coroutine_function_is_told_so() -> None:
    async def exhausted(row: Any, error: BaseException) -> Any:
        await asyncio.sleep(0)

    move = decided(ValueError(), row(4), reconciler(exhausted=exhausted))
    assert isinstance(move, SetAside)
    assert "returned an awaitable" in move.reason


def test_exhausted_that_returns_nothing_quarantines_as_usual() -> None:
    move = decided(ValueError(), row(4), reconciler(exhausted=lambda row, error: None))
    assert isinstance(move, SetAside)
    assert move.reason == "out of attempts"


def test_in_shadow_exhausted_is_not_asked() -> None:
    def exhausted(row: Any, error: BaseException) -> Any:
        raise AssertionError("asked")

    move = decided(ValueError(), row(4), reconciler(exhausted=exhausted, mode="shadow"))
    assert isinstance(move, SetAside)
    assert move.reason == "out of attempts"
