from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.moments import utc
from trueup.durations import MAX_DURATION
from trueup.schedules.decide import delay

NOON = utc("2026-06-01T12:00")
MINUTE = timedelta(minutes=1)


@pytest.mark.slow
@given(st.text(), st.timedeltas(timedelta(), MAX_DURATION))
def test_a_delay_is_less_than_the_jitter(schedule: str, jitter: timedelta) -> None:
    assert timedelta() <= delay(schedule, NOON, jitter) < max(jitter, timedelta.resolution)


def test_every_planner_draws_the_same_delay() -> None:
    assert delay("nightly", NOON, MINUTE) == delay("nightly", NOON.astimezone(timezone(timedelta(hours=2))), MINUTE)
    assert delay("nightly", NOON, MINUTE) == timedelta(microseconds=41540035), "also in the next release"


def test_schedules_that_are_due_together_are_spread_evenly() -> None:
    delays = [delay(f"schedule {number}", NOON, MINUTE) for number in range(6_000)]
    by_tenth = [sum(1 for each in delays if each // (MINUTE / 10) == tenth) for tenth in range(10)]
    assert sum(by_tenth) == 6_000
    assert all(500 < count < 700 for count in by_tenth)


def test_the_ticks_of_one_schedule_are_not_all_moved_alike() -> None:
    assert len({delay("nightly", NOON + day * timedelta(days=1), MINUTE) for day in range(100)}) == 100
