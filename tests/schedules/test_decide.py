from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.schedules.moments import utc, written
from trueup.schedules import Every, Once
from trueup.schedules.decide import REPLACED, Decision, decide, delay
from trueup.schedules.misfire import Missed
from trueup.schedules.overlap import Overlap, RunCounts
from trueup.schedules.policy import SchedulePolicy

NOON = utc("2026-06-01T12:00")
TEN_SECONDS = Every("10s")
HOUR = timedelta(hours=1)


def after(seconds: float, policy: SchedulePolicy | None = None, runs: RunCounts = RunCounts()) -> Decision:  # noqa: B008
    """What is decided so many seconds after noon, up to which everything is decided."""
    return decide("s", TEN_SECONDS, policy or SchedulePolicy(), NOON, NOON + timedelta(seconds=seconds), runs)


def fired(decision: Decision) -> list[str]:
    return written(verdict.due_at for verdict in decision.verdicts if verdict.fired)


def reasons(decision: Decision) -> list[str | None]:
    return [verdict.reason for verdict in decision.verdicts]


def test_a_tick_on_time_is_fired_to_run_when_it_is_due() -> None:
    decision = after(10)
    (verdict,) = decision.verdicts
    assert (verdict.due_at, verdict.run_at, verdict.reason) == (NOON + timedelta(seconds=10),) * 2 + (None,)
    assert decision.decided_until == NOON + timedelta(seconds=10)
    assert decision.next_due == NOON + timedelta(seconds=20)
    assert not decision.stop_running


def test_before_the_next_tick_nothing_is_decided() -> None:
    assert after(9.999) == Decision((), NOON, NOON + timedelta(seconds=10), stop_running=False)


def test_a_clock_that_went_back_decides_nothing() -> None:
    assert after(-HOUR.total_seconds()).verdicts == ()
    assert after(-HOUR.total_seconds()).decided_until == NOON


def test_after_the_only_tick_there_is_no_next() -> None:
    decision = decide("s", Once(NOON + HOUR), SchedulePolicy(), NOON, NOON + 2 * HOUR, RunCounts())
    assert fired(decision) == ["2026-06-01T13:00"]
    assert decision.next_due is None


@pytest.mark.parametrize(
    ("overlap", "count", "stops"),
    [
        ("skip", 0, False),
        ("queue_one", 1, False),
        ("queue_all", 3, False),
        ("allow", 3, False),
        ("cancel_running", 1, True),
    ],
)
def test_three_ticks_that_meet_a_run_at_work(overlap: Overlap, count: int, stops: bool) -> None:
    decision = after(30, SchedulePolicy(overlap=overlap), RunCounts(running=1))
    assert len(decision.verdicts) == 3
    assert len(fired(decision)) == count
    assert decision.stop_running is stops


def test_with_skip_the_first_of_several_due_together_stands_in_the_way_of_the_others() -> None:
    decision = after(30)
    assert fired(decision) == ["2026-06-01T12:00:10"]
    assert reasons(decision) == [None, "still waiting to run", "still waiting to run"]


def test_with_cancel_running_the_last_of_several_due_together_replaces_the_others() -> None:
    decision = after(30, SchedulePolicy(overlap="cancel_running"))
    assert fired(decision) == ["2026-06-01T12:00:30"]
    assert reasons(decision) == [REPLACED, REPLACED, None]


def test_with_cancel_running_what_was_missed_keeps_its_own_reason() -> None:
    decision = after(90, SchedulePolicy(overlap="cancel_running", missed="skip"))
    assert reasons(decision)[0] == "missed"
    assert fired(decision) == ["2026-06-01T12:01:30"]


@pytest.mark.parametrize("missed", ["latest", "all", "skip"])
def test_every_tick_is_counted_once_whatever_the_policy(missed: Missed) -> None:
    for overlap in ("skip", "queue_one", "queue_all", "cancel_running", "allow"):
        decision = after(600, SchedulePolicy(missed=missed, overlap=overlap), RunCounts(running=1))
        assert sum(verdict.count for verdict in decision.verdicts) == 60
        assert all(verdict.fired is (verdict.reason is None) for verdict in decision.verdicts)


def test_jitter_delays_the_run_and_leaves_the_tick() -> None:
    (verdict,) = after(10, SchedulePolicy(jitter=HOUR)).verdicts
    due_at: datetime = NOON + timedelta(seconds=10)
    assert verdict.due_at == due_at
    assert verdict.run_at == due_at + delay("s", due_at, HOUR) > due_at


def test_a_failing_schedule_skips_all_that_is_due_as_paused() -> None:
    decision = decide("s", TEN_SECONDS, SchedulePolicy(), NOON, NOON + HOUR, RunCounts(), failing=True)
    assert fired(decision) == []
    assert reasons(decision) == ["paused"]
    assert decision.verdicts[0].count == 360
