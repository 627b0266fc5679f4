from __future__ import annotations

import pickle
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedules.moments import utc, written
from trueup.durations import MAX_DURATION
from trueup.errors import ConfigError
from trueup.schedules import Every

MOMENTS = st.datetimes(datetime.fromisoformat("1970-01-01"), datetime.fromisoformat("2100-01-01")).map(
    lambda drawn: utc(drawn.isoformat())
)
INTERVALS = st.timedeltas(timedelta(seconds=1), MAX_DURATION)


def test_ticks_are_counted_from_the_epoch_so_that_all_instances_agree() -> None:
    found = Every("5m").between(utc("2026-01-01T00:02:30"), utc("2026-01-01T00:15"))
    assert written(found) == ["2026-01-01T00:05", "2026-01-01T00:10", "2026-01-01T00:15"]


def test_an_anchor_moves_the_phase_before_it_and_after_it() -> None:
    every = Every("1h", anchor=utc("2026-06-01T00:20"))
    assert written([every.next_after(utc("2026-01-01T00:00"))]) == ["2026-01-01T00:20"]
    assert written([every.next_after(utc("2026-12-01T00:20"))]) == ["2026-12-01T01:20"]


@given(INTERVALS, MOMENTS, MOMENTS, st.floats(0, 0.999))
def test_next_is_later_and_constant_between_two_ticks(
    interval: timedelta, anchor: datetime, t: datetime, part: float
) -> None:
    every = Every(interval, anchor)
    tick = every.next_after(t)
    assert tick is not None
    assert t < tick <= t + interval
    assert (tick - anchor) % interval == timedelta()
    assert every.next_after(tick) == tick + interval
    assert every.next_after(tick + interval * part) == tick + interval


def test_it_counts_real_time_whatever_clocks_do() -> None:
    found = list(Every("24h").between(utc("2026-03-27T12:00"), utc("2026-03-31T12:00")))
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(days=1)}


def test_the_calendar_ends_without_an_error() -> None:
    assert Every("36525d").next_after(utc("9990-01-01T00:00")) is None


@pytest.mark.parametrize(
    ("interval", "why"),
    [
        ("0s", "too often"),
        ("999ms", "too often"),
        (timedelta(), "too often"),
        ("-5m", "duration"),
        (300, "no unit"),
        ("", "duration"),
    ],
)
def test_an_interval_that_is_none_is_refused(interval: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Every(interval)


def test_an_anchor_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="anchor=2026-01-01T00:00:00 has no time zone"):
        Every("5m", anchor=datetime.fromisoformat("2026-01-01"))


def test_equal_when_interval_and_anchor_are() -> None:
    assert Every("60m") == Every("1h") == Every(timedelta(hours=1))
    assert hash(Every("60m")) == hash(Every("1h"))
    assert Every("1h") != Every("1h", anchor=utc("2026-01-01T00:20"))
    assert pickle.loads(pickle.dumps(Every("1h"))) == Every("1h")


def test_it_can_be_told_in_words() -> None:
    assert Every("90m").describe() == "Every 1h30m"
    assert Every("1h", anchor=utc("2026-01-01T00:20")).describe() == "Every 1h, counted from 2026-01-01T00:20:00+00:00"
