from __future__ import annotations

import pytest

from trueup.work.jobs.pace import AHEAD_FOR, Pace


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def test_a_pace_that_is_kept_is_approached_and_claimed_ahead_for(seconds: Seconds) -> None:
    pace = Pace(seconds)
    for _ in range(20):
        seconds.now += 0.1
        pace.measure(round(seconds.now * 1000))
    assert pace.per_second == pytest.approx(1000, rel=0.01)
    assert pace.ahead(4_000) == pytest.approx(1000 * AHEAD_FOR, abs=2)
    assert pace.ahead(40) == 40


def test_a_pace_that_is_not_kept_is_forgotten_within_a_second(seconds: Seconds) -> None:
    pace = Pace(seconds)
    for _ in range(20):
        seconds.now += 0.1
        pace.measure(round(seconds.now * 1000))
    ended = round(seconds.now * 1000)
    seconds.now += 2.0
    pace.measure(ended)
    assert pace.ahead(4_000) == 0


def test_long_jobs_are_not_claimed_ahead(seconds: Seconds) -> None:
    pace = Pace(seconds)
    for ended in range(1, 20):
        seconds.now += 0.1
        pace.measure(ended)
    assert pace.ahead(4_000) == 0


def test_two_looks_at_the_same_moment_are_one_measurement(seconds: Seconds) -> None:
    pace = Pace(seconds)
    pace.measure(1_000)
    assert pace.per_second == 0
