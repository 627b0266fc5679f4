from __future__ import annotations

from datetime import datetime

import pytest

from trueup.schedules.cron import Expression


def first(expr: str, reading: str) -> str:
    found = Expression.parse(expr).first(datetime.fromisoformat(reading))
    return "none" if found is None else f"{found:%Y-%m-%dT%H:%M:%S}".removesuffix(":00")


@pytest.mark.parametrize(
    ("expr", "reading", "match"),
    [
        ("30 2 * * *", "2026-01-01T02:30", "2026-01-01T02:30"),
        ("30 2 * * *", "2026-01-01T02:30:00.000001", "2026-01-02T02:30"),
        ("*/15 * * * *", "2026-01-01T02:31", "2026-01-01T02:45"),
        ("*/15 * * * *", "2026-12-31T23:46", "2027-01-01T00:00"),
        ("5/20 * * * *", "2026-01-01T00:06", "2026-01-01T00:25"),
        ("10-20/5,40 * * * *", "2026-01-01T00:16", "2026-01-01T00:20"),
        ("10-20/5,40 * * * *", "2026-01-01T00:21", "2026-01-01T00:40"),
        ("0 9-17 * * MON-FRI", "2026-01-02T17:01", "2026-01-05T09:00"),
        ("0 9 * jan,JUL sun", "2026-02-01T00:00", "2026-07-05T09:00"),
        ("0 0 * * 7", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 * * 0", "2026-01-01T00:00", "2026-01-04T00:00"),
        ("0 0 * * 6-7", "2026-01-05T00:00", "2026-01-10T00:00"),
        ("0 0 L * *", "2026-02-01T00:00", "2026-02-28T00:00"),
        ("0 0 L * *", "2028-02-01T00:00", "2028-02-29T00:00"),
        ("0 0 LW * *", "2026-01-01T00:00", "2026-01-30T00:00"),
        ("0 0 LW * *", "2026-05-01T00:00", "2026-05-29T00:00"),
        ("0 0 15,L * *", "2026-01-16T00:00", "2026-01-31T00:00"),
        ("0 0 * * 5L", "2026-01-01T00:00", "2026-01-30T00:00"),
        ("0 0 * * FRI#2", "2026-01-01T00:00", "2026-01-09T00:00"),
        ("0 0 * * 1#5", "2026-01-01T00:00", "2026-03-30T00:00"),
        ("0 0 * 2 MON#5", "2026-01-01T00:00", "2044-02-29T00:00"),
        ("0 0 * 2 MON#5", "2072-03-01T00:00", "2112-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 13 * FRI", "2026-01-01T00:00", "2026-01-02T00:00"),  # either of them, as in every cron
        ("0 0 */2 * FRI", "2026-01-01T00:00", "2026-01-09T00:00"),  # both of them, because one has a star
        ("15 30 2 * * *", "2026-01-01T02:30:16", "2026-01-02T02:30:15"),
        ("*/20 * * * * *", "2026-01-01T00:00:41", "2026-01-01T00:01"),
        ("0 0 1 1 *", "9998-01-01T00:01", "none"),
    ],
)
def test_the_first_match_from_a_reading_on(expr: str, reading: str, match: str) -> None:
    assert first(expr, reading) == match


@pytest.mark.parametrize(
    ("shorthand", "expr"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@Daily", "0 0 * * *"),
    ],
)
def test_a_shorthand_stands_for_its_fields(shorthand: str, expr: str) -> None:
    for reading in ("2026-01-01T00:00:01", "2026-06-15T12:34"):
        assert first(shorthand, reading) == first(expr, reading)


def test_blanks_and_tabs_may_be_around_and_between_the_fields() -> None:
    assert Expression.parse("  30\t2  * * *  ").text == "30 2 * * *"


@pytest.mark.parametrize("expr", ["5-5/10 * * * *", "05-5/10 * * * *"])
def test_a_range_of_one_value_stays_one_value_whatever_its_step(expr: str) -> None:
    assert Expression.parse(expr).minutes == [5]


def test_a_range_of_one_named_value_stays_one_value_whatever_its_step() -> None:
    assert first("0 0 1 MAR-3/2 *", "2026-01-01T00:00") == "2026-03-01T00:00"
    assert first("0 0 1 MAR-3/2 *", "2026-03-02T00:00") == "2027-03-01T00:00"


def test_a_star_counts_wherever_it_is_in_a_list() -> None:
    assert Expression.parse("7,*/15 2 * * *").wildcard
    assert Expression.parse("*/15,7 2 * * *").wildcard
    assert (
        first("0 0 5,* * MON", "2026-01-01T00:00") == first("0 0 *,5 * MON", "2026-01-01T00:00") == "2026-01-05T00:00"
    )


def test_an_expression_can_be_told_in_words() -> None:
    assert Expression.parse("30 2 * * MON-FRI").describe() == "At 02:30 on Monday through Friday"
