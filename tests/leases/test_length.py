from __future__ import annotations

from datetime import timedelta

import pytest

from trueup.leases.trust import longest_hold


@pytest.mark.parametrize(
    ("interval", "longest"),
    [
        (timedelta(minutes=15), timedelta(minutes=14)),
        (timedelta(days=1), timedelta(hours=23)),
        (timedelta(hours=1), timedelta(minutes=57, seconds=30)),
        (timedelta(minutes=1), timedelta(seconds=54)),
        (timedelta(seconds=10), timedelta(seconds=9)),
        (timedelta(seconds=1), timedelta(seconds=1)),
    ],
    ids=str,
)
def test_a_run_may_hold_its_lease_for_a_little_less_than_the_interval(interval: timedelta, longest: timedelta) -> None:
    assert longest_hold(interval) == longest


def test_a_longer_interval_never_means_a_shorter_hold() -> None:
    holds = [longest_hold(timedelta(seconds=seconds)) for seconds in range(1, 200_000, 7)]
    assert holds == sorted(holds)
