"""Starts keep to their rate, whenever a busy process comes to them."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.work.jobs.test_hand import job
from trueup.durations import Rate
from trueup.store.lanes import Offset
from trueup.testing.clock import ManualClock
from trueup.work.jobs.pacing import MAX_GIVEN_BACK, MAX_WAIT, MIN_TOLERANCE, Paced

rates = st.builds(
    lambda count, burst: Rate(count, timedelta(seconds=1), min(burst, count)), st.integers(1, 50), st.integers(1, 5)
)
stalls = st.lists(st.integers(1, 3_000), min_size=1, max_size=60)  # milliseconds until the process comes back


def expect(paced: Paced, rate: Rate, count: int) -> None:
    for number in range(count):
        paced.add(job(number, lane="@send"), number * rate.spacing.total_seconds(), rate)


@given(rates, stalls)
def test_no_second_has_more_starts_than_the_rate_however_late_the_process_is(rate: Rate, pauses: list[int]) -> None:
    clock, starts = ManualClock(), list[float]()
    paced = Paced(clock.elapsed)
    expect(paced, rate, 100)
    for pause in pauses:
        clock.advance(milliseconds=pause)
        paced.late()
        while paced.take(lambda _: True) is not None:
            starts.append(clock.elapsed())
    most = rate.count + rate.burst - 1
    assert all(beyond - first >= 1 - 1e-6 for first, beyond in zip(starts, starts[most:], strict=False))
    if rate.burst == 1:
        assert all(later - earlier >= rate.spacing.total_seconds() - 1e-6 for earlier, later in pairwise(starts))


@pytest.mark.parametrize("rate", ["1/s", "5/s", "1000/s"])
def test_a_start_comes_within_the_tolerance_of_its_moment_or_goes_back(rate: str) -> None:
    clock, parsed = ManualClock(), Rate.parse(rate)
    paced, tolerance = Paced(clock.elapsed), max(parsed.spacing.total_seconds(), MIN_TOLERANCE)
    expect(paced, parsed, 2)
    clock.advance(seconds=tolerance - 0.001)
    assert (started := paced.take(lambda _: True)) is not None
    assert started.id == 0
    clock.advance(seconds=parsed.spacing.total_seconds() + 0.002)
    assert paced.take(lambda _: True) is None
    assert paced.any_late()
    assert [late.id for late in paced.late()] == [1]
    assert paced.next_in() is None


def test_a_process_that_is_always_late_starts_one_now_and_then() -> None:
    clock, rate, started = ManualClock(), Rate.parse("5/s"), 0
    paced = Paced(clock.elapsed)
    for _ in range(3 * (MAX_GIVEN_BACK + 1)):
        paced.add(job(1, lane="@send"), clock.elapsed(), rate)
        clock.advance(seconds=1)
        paced.late()
        started += paced.take(lambda _: True) is not None
    assert started == 3


def test_a_job_that_finds_no_place_goes_back_however_often_others_did_before() -> None:
    clock, rate = ManualClock(), Rate.parse("100/s")
    paced = Paced(clock.elapsed)
    for number in range(3 * MAX_GIVEN_BACK):
        paced.add(job(number, lane="@send"), clock.elapsed(), rate)
        clock.advance(seconds=MIN_TOLERANCE + MAX_WAIT + 0.01)
        assert paced.take(lambda _: False) is None
        assert [late.id for late in paced.late()] == [number]


def test_it_is_known_when_the_next_may_start() -> None:
    clock, rate = ManualClock(), Rate.parse("5/s")
    paced = Paced(clock.elapsed)
    assert paced.next_in() is None
    paced.add(job(1, lane="@send"), 0.3, rate)
    paced.add(job(2, lane="@send"), 0.5, rate)
    assert (paced.ready(), paced.next_in()) == (0, 0.3)
    clock.advance(seconds=0.3)
    assert (paced.ready(), paced.next_in()) == (1, pytest.approx(0.2))
    assert paced.take(lambda _: True) is not None
    assert (paced.ready(), paced.next_in()) == (0, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("exchanges", "expected"),
    [
        ([(100.0, 5.0, 5.4)], 5.4),  # the only one: when its reply came
        ([(100.0, 5.0, 5.01), (200.0, 105.0, 109.0)], 105.01),  # a reply that came late: by the quick one before it
        (
            [(100.0, 5.0, 5.01), (50.0, 105.0, 105.3)],
            105.0,
        ),  # the database's clock was set back: not before it was asked
        ([(100.0, 5.0, 5.01), (900.0, 105.0, 105.3)], 105.3),  # it was set on
    ],
)
def test_a_moment_of_the_database_is_placed_between_asking_and_hearing(
    exchanges: list[tuple[float, float, float]], expected: float
) -> None:
    offset = Offset()
    placed = [offset.locally(*exchange) for exchange in exchanges]
    assert placed[-1] == pytest.approx(expected)
