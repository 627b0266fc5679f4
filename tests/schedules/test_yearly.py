from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedules.moments import utc, written
from tests.schedules.oracle import Oracle
from tests.support.matrix import count
from trueup.errors import ConfigError
from trueup.schedules import yearly
from trueup.schedules.yearly import LeapDay
from trueup.schedules.zones import zone, zone_names

LEAP_DAYS: st.SearchStrategy[LeapDay] = st.sampled_from(["feb28", "mar1", "skip"])


def test_it_comes_at_its_wall_clock_time_in_summer_and_in_winter() -> None:
    assert written([yearly(7, 1, "09:00", "Europe/Berlin").occurrence(2026)]) == ["2026-07-01T07:00"]
    assert written([yearly(12, 1, "09:00", "Europe/Berlin").occurrence(2026)]) == ["2026-12-01T08:00"]


def test_the_day_may_be_another_one_in_utc() -> None:
    birthday = yearly(1, 1, "09:00", "Pacific/Kiritimati")
    assert written([birthday.occurrence(2026)]) == ["2025-12-31T19:00"]
    assert written([birthday.next_after(utc("2025-12-31T18:00"))]) == ["2025-12-31T19:00"]
    assert written([birthday.next_after(utc("2025-12-31T19:00"))]) == ["2026-12-31T19:00"]


def test_the_year_on_the_wall_may_be_behind_that_of_utc() -> None:
    midnight = yearly(12, 31, "23:00", "Etc/GMT+12")
    assert written([midnight.next_after(utc("2026-01-01T05:00"))]) == ["2026-01-01T11:00"]


def test_a_time_that_clocks_skip_comes_at_the_first_moment_after_the_gap() -> None:
    assert written([yearly(3, 29, "02:30", "Europe/Berlin").occurrence(2026)]) == ["2026-03-29T01:00"]


def test_a_time_that_clocks_repeat_comes_the_first_time() -> None:
    birthday = yearly(10, 25, "02:30", "Europe/Berlin")
    assert written([birthday.occurrence(2026)]) == ["2026-10-25T00:30"]
    assert written([birthday.next_after(utc("2026-10-25T01:00"))]) == ["2027-10-25T00:30"]


def test_a_birthday_on_a_date_that_a_zone_left_out_is_not_lost() -> None:
    birthday = yearly(12, 30, "09:00", "Pacific/Apia")
    assert written(birthday.between(utc("2010-01-01T00:00"), utc("2013-01-01T00:00"))) == [
        "2010-12-30T19:00",
        "2011-12-30T10:00",  # midnight, when 29 December became the 31st
        "2012-12-29T19:00",
    ]


@pytest.mark.parametrize(
    ("leap_day", "expected"),
    [
        ("feb28", ["2027-02-28T09:00", "2028-02-29T09:00", "2029-02-28T09:00"]),
        ("mar1", ["2027-03-01T09:00", "2028-02-29T09:00", "2029-03-01T09:00"]),
        ("skip", ["2028-02-29T09:00", "2032-02-29T09:00", "2036-02-29T09:00"]),
    ],
)
def test_a_leap_day_is_kept_as_asked_in_other_years(leap_day: LeapDay, expected: list[str]) -> None:
    birthday = yearly(2, 29, "09:00", "UTC", leap_day)
    assert written(birthday.between(utc("2026-06-01T00:00"), utc("2099-01-01T00:00"), limit=3)) == expected


def test_a_leap_day_that_is_skipped_has_no_occurrence_in_other_years() -> None:
    birthday = yearly(2, 29, "09:00", "UTC", "skip")
    assert birthday.occurrence(2027) is None
    assert birthday.occurrence(2100) is None
    assert written([birthday.next_after(utc("2096-03-01T00:00"))]) == ["2104-02-29T09:00"]


def test_28_february_is_not_moved_by_leap_years() -> None:
    assert written([yearly(2, 28, "09:00", "UTC").occurrence(2028)]) == ["2028-02-28T09:00"]


@settings(max_examples=count(40, proof=200))
@given(
    st.dates(),
    st.times().map(lambda drawn: drawn.replace(second=0, microsecond=0, fold=0)),
    st.sampled_from(sorted(zone_names())),
    LEAP_DAYS,
    st.integers(1970, 2100),
)
def test_every_year_has_one_occurrence_where_a_scan_of_the_clock_finds_it(
    day: date, at: time, tz: str, leap_day: LeapDay, year: int
) -> None:
    birthday = yearly(day.month, day.day, at, tz, leap_day)
    occurrence = birthday.occurrence(year)
    if occurrence is None:
        assert (day.month, day.day, leap_day) == (2, 29, "skip")
        return
    assert birthday.next_after(occurrence - timedelta(microseconds=1)) == occurrence
    following = birthday.next_after(occurrence)
    assert following is not None
    assert following > occurrence
    if (day.month, day.day) != (2, 29):
        oracle = Oracle(f"{at.minute} {at.hour} {day.day} {day.month} *", zone(tz))
        midnight = datetime(year, day.month, day.day, tzinfo=UTC)
        assert oracle.ticks(midnight - timedelta(days=1), midnight + timedelta(days=2)) == [occurrence]


def test_years_outside_the_calendar_have_no_occurrence() -> None:
    birthday = yearly(6, 1, "09:00", "UTC")
    assert birthday.occurrence(0) is None
    assert birthday.occurrence(10_000) is None
    assert birthday.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert written([birthday.next_after(datetime.min.replace(tzinfo=UTC))]) == ["1800-06-01T09:00"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((2, 30, "09:00", "UTC"), "month=2, day=30 is a day that does not exist in any year"),
        ((13, 1, "09:00", "UTC"), "month=13, day=1"),
        ((6, "1", "09:00", "UTC"), "a day that does not exist"),
        ((6, 1, "9 o'clock", "UTC"), "is not a time of day"),
        ((6, 1, "24:30", "UTC"), "is not a time of day"),
        ((6, 1, 9, "UTC"), "is not a time of day"),
        ((6, 1, "09:00+02:00", "UTC"), "has its own time zone"),
        ((6, 1, "09:00", "Europe/Berlni"), "Europe/Berlin"),
        ((6, 1, "09:00", "UTC", "feb29"), "leap_day='feb29'"),
    ],
)
def test_what_cannot_be_is_refused(arguments: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        yearly(*arguments)


def test_equal_when_made_alike_also_after_pickling() -> None:
    birthday = yearly(6, 1, "09:00", "Europe/Berlin")
    assert birthday == yearly(6, 1, time(9), "Europe/Berlin") == pickle.loads(pickle.dumps(birthday))
    assert birthday != yearly(6, 1, "09:01", "Europe/Berlin")
