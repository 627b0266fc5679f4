"""When messages are due: pure, no database."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from apps.birthdays.planning import Planned, Rules, first_after, following, planned_for
from trueup import ConfigError


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(born: date, timezone: str, year: int, **rules: Any) -> str | None:
    planned = planned_for(Rules(**rules).birthday(born, timezone), year)
    return None if planned is None else f"{planned.due_at:%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("timezone", "moment"),
    [
        ("UTC", "2026-06-01 09:00"),
        ("America/New_York", "2026-06-01 13:00"),
        ("Europe/London", "2026-06-01 08:00"),
        ("Asia/Tokyo", "2026-06-01 00:00"),
        ("America/Los_Angeles", "2026-06-01 16:00"),
        ("Asia/Kathmandu", "2026-06-01 03:15"),
        ("Pacific/Kiritimati", "2026-05-31 19:00"),
    ],
)
def test_it_is_nine_on_the_users_own_clocks(timezone: str, moment: str) -> None:
    assert due(date(1990, 6, 1), timezone, 2026) == moment


@pytest.mark.parametrize(
    ("rule", "in_2027", "in_2028"),
    [
        ("feb28", "2027-02-28 09:00", "2028-02-29 09:00"),
        ("mar1", "2027-03-01 09:00", "2028-02-29 09:00"),
        ("skip", None, "2028-02-29 09:00"),
    ],
)
def test_29_february_is_kept_in_other_years_as_the_rule_says(
    rule: str, in_2027: str | None, in_2028: str | None
) -> None:
    assert due(date(2000, 2, 29), "UTC", 2027, leap_day=rule) == in_2027
    assert due(date(2000, 2, 29), "UTC", 2028, leap_day=rule) == in_2028


def test_with_29_february_left_out_the_message_after_that_of_2024_is_that_of_2028() -> None:
    birthday = Rules(leap_day="skip").birthday(date(2000, 2, 29), "UTC")
    assert following(birthday, 2024) == Planned(2028, utc("2028-02-29 09:00"))
    assert first_after(birthday, utc("2024-02-29 09:00")).year == 2028


@pytest.mark.parametrize(
    ("born", "timezone", "at", "year", "moment"),
    [
        # Berlin's clocks go from 02:00 to 03:00, which is 01:00Z.
        (date(1990, 3, 29), "Europe/Berlin", "02:30", 2026, "2026-03-29 01:00"),
        (date(1990, 3, 8), "America/New_York", "02:30", 2026, "2026-03-08 07:00"),
        # In Athens nine o'clock itself was left out once.
        (date(1970, 4, 1), "Europe/Athens", "09:00", 1979, "1979-04-01 07:00"),
    ],
)
def test_a_time_that_the_clocks_jump_over_comes_right_after_the_jump(
    born: date, timezone: str, at: str, year: int, moment: str
) -> None:
    assert due(born, timezone, year, at=at) == moment


@pytest.mark.parametrize(
    ("born", "timezone", "year", "moment"),
    [
        (date(1990, 10, 25), "Europe/Berlin", 2026, "2026-10-25 00:30"),
        (date(1990, 11, 1), "America/New_York", 2026, "2026-11-01 05:30"),
    ],
)
def test_a_time_that_comes_twice_counts_the_first_time(born: date, timezone: str, year: int, moment: str) -> None:
    assert due(born, timezone, year, at="02:30" if "Berlin" in timezone else "01:30") == moment


def test_a_day_that_a_zone_left_out_is_delivered_right_after_it() -> None:
    """Samoa went from the end of 29 December 2011 to 31 December."""
    assert due(date(1990, 12, 30), "Pacific/Apia", 2011) == "2011-12-30 10:00"
    birthday = Rules().birthday(date(1990, 12, 30), "Pacific/Apia")
    assert first_after(birthday, utc("2011-12-30 09:59")) == Planned(2011, utc("2011-12-30 10:00"))
    assert first_after(birthday, utc("2011-12-30 10:00")).year == 2012
    assert following(birthday, 2011) == Planned(2012, utc("2012-12-29 19:00"))


@pytest.mark.parametrize(
    ("created", "year"),
    [("2026-06-01 08:59:59", 2026), ("2026-06-01 09:00:00", 2027), ("2026-06-01 23:00", 2027), ("2026-06-02", 2027)],
)
def test_created_on_the_birthday_after_nine_it_is_next_years(created: str, year: int) -> None:
    assert first_after(Rules().birthday(date(1990, 6, 1), "UTC"), utc(created)).year == year


def test_new_years_day_far_in_the_east_is_of_the_year_on_the_users_clocks() -> None:
    birthday = Rules().birthday(date(1990, 1, 1), "Pacific/Kiritimati")
    assert first_after(birthday, utc("2026-12-31 18:00")) == Planned(2027, utc("2026-12-31 19:00"))
    assert first_after(birthday, utc("2026-12-31 19:00")).year == 2028


def test_new_years_eve_far_in_the_west_is_of_last_year_when_it_is_new_year_in_utc() -> None:
    birthday = Rules(at="20:00").birthday(date(1990, 12, 31), "Pacific/Pago_Pago")
    assert first_after(birthday, utc("2027-01-01 06:00")) == Planned(2026, utc("2027-01-01 07:00"))


def test_years_that_have_a_message_are_left_out() -> None:
    birthday = Rules().birthday(date(1990, 12, 1), "UTC")
    assert first_after(birthday, utc("2026-06-01"), without={2026, 2027}).year == 2028


def test_there_is_one_message_a_year_and_they_are_a_year_apart() -> None:
    birthday = Rules().birthday(date(1990, 6, 1), "Australia/Lord_Howe")
    planned = first_after(birthday, utc("2026-01-01"))
    for year in range(2027, 2100):
        later = following(birthday, planned.year)
        assert later.year == year
        assert abs(later.due_at - planned.due_at - timedelta(days=365.5)) < timedelta(days=1)
        planned = later


def test_a_year_beyond_all_calendars_is_an_error_and_no_endless_search() -> None:
    with pytest.raises(ConfigError, match="9000"):
        following(Rules().birthday(date(1990, 6, 1), "UTC"), 99_999)
