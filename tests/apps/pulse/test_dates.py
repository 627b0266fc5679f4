"""Next reports, reminders and mornings."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.pulse.dates import Clock, Frequency, Reminder, clocks, following, next_run, reminder, since

moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - they get it
frequencies = st.sampled_from(Frequency)
anchors = st.integers(1, 31)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def several(frequency: Frequency, first: str, anchor_day: int, count: int) -> list[str]:
    moment, found = at(first), []
    for _ in range(count):
        moment = following(frequency, moment, anchor_day)
        found.append(f"{moment:%Y-%m-%d}")
    return found


@pytest.mark.parametrize(
    ("first", "anchor_day", "expected"),
    [
        ("2026-01-31", 31, ["2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]),
        ("2028-01-31", 31, ["2028-02-29", "2028-03-31"]),
        ("2026-01-30", 30, ["2026-02-28", "2026-03-30"]),
        ("2026-12-31", 31, ["2027-01-31", "2027-02-28", "2027-03-31"]),
        ("2026-01-15", 15, ["2026-02-15", "2026-03-15"]),
    ],
)
def test_a_monthly_report_keeps_its_day_through_short_months(first: str, anchor_day: int, expected: list[str]) -> None:
    assert several(Frequency.MONTHLY, first, anchor_day, len(expected)) == expected


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [(Frequency.DAILY, "2026-03-01"), (Frequency.WEEKLY, "2026-03-07"), (Frequency.BIWEEKLY, "2026-03-14")],
)
def test_other_reports_come_after_so_many_days(frequency: Frequency, expected: str) -> None:
    assert several(frequency, "2026-02-28", 28, 1) == [expected]


@given(frequencies, moments, anchors, st.timedeltas(timedelta(), timedelta(days=3000)))
def test_the_next_run_is_the_first_of_the_series_that_is_to_come(
    frequency: Frequency, due_at: datetime, anchor_day: int, late: timedelta
) -> None:
    now = due_at + late
    series = [due_at]
    while series[-1] <= now:
        series.append(following(frequency, series[-1], anchor_day))
    assert next_run(frequency, due_at, anchor_day, now) == (series[-1], len(series) - 2)
    assert all(before < after for before, after in pairwise(series))


@given(moments, anchors)
def test_a_monthly_report_is_on_its_day_or_on_the_last_of_the_month(due_at: datetime, anchor_day: int) -> None:
    found = following(Frequency.MONTHLY, due_at, anchor_day)
    assert found.day == min(anchor_day, monthrange(found.year, found.month)[1])


def test_a_report_is_about_the_time_since_the_one_before() -> None:
    assert since(Frequency.WEEKLY, at("2026-03-10")) == at("2026-03-03")
    assert since(Frequency.MONTHLY, at("2026-03-31")) == at("2026-02-28")
    assert since(Frequency.MONTHLY, at("2026-01-15")) == at("2025-12-15")


@pytest.mark.parametrize(
    ("left", "kind"),
    [
        (5, None),
        (4, None),
        (3, Reminder.THREE_DAYS),
        (2, Reminder.THREE_DAYS),
        (1, Reminder.ONE_DAY),
        (0, Reminder.DAY_OF),
        (-1, None),
    ],
)
def test_a_checkpoint_is_reminded_of_three_days_one_day_and_on_the_day(left: int, kind: Reminder | None) -> None:
    today = date(2026, 2, 27)
    assert reminder(today + timedelta(days=left), today) is kind


def test_a_day_passes_in_each_zone_by_its_own_clocks() -> None:
    shown, unknown = clocks(["Asia/Kathmandu", "America/Los_Angeles", "UTC"], at("2026-06-01T02:15"))
    assert shown == [
        Clock("Asia/Kathmandu", date(2026, 6, 1), 8),
        Clock("America/Los_Angeles", date(2026, 5, 31), 19),
        Clock("UTC", date(2026, 6, 1), 2),
    ]
    assert unknown == []


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "localtime", "Europe/Berlin ", "\x00"])
def test_a_zone_that_is_none_is_told_apart_from_the_others(name: str) -> None:
    assert clocks([name, "UTC"], at("2026-06-01")) == ([Clock("UTC", date(2026, 6, 1), 0)], [name])


@pytest.mark.parametrize("timezone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"])
@pytest.mark.parametrize("hour", [0, 1, 2, 3, 8, 23])
@pytest.mark.parametrize("year", [2026, 2027])
def test_whenever_clocks_are_moved_each_day_has_one_first_quarter_of_an_hour_for_it(
    timezone: str, hour: int, year: int
) -> None:
    """As the job looks: every quarter of an hour, for those whose hour has come and who had none that day."""
    served: list[date] = []
    moment = at(f"{year}-03-01")
    while moment < at(f"{year}-05-01"):
        ((clock,), _) = clocks([timezone], moment)
        if clock.hour >= hour and clock.day not in served:
            served.append(clock.day)
        moment += timedelta(minutes=15)
    assert all(after - before == timedelta(days=1) for before, after in pairwise(served))
    assert len(served) >= 60
