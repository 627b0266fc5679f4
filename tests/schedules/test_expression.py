from __future__ import annotations

import re
import time
import tracemalloc
from datetime import datetime
from typing import Any

import pytest

from trueup.errors import ConfigError
from trueup.schedules.expression import Expression


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


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        ("60 * * * *", "minute '60' is not valid; it takes 0-59"),
        ("* 24 * * *", "hour '24' is not valid; it takes 0-23"),
        ("* * 0 * *", "day-of-month '0' is not valid; it takes 1-31"),
        ("* * 32 * *", "day-of-month '32' is not valid"),
        ("* * * 13 *", "month '13' is not valid; it takes 1-12 or JAN-DEC"),
        ("* * * * 8", "day-of-week '8' is not valid; it takes 0-7 or SUN-SAT"),
        ("60 * * * * *", "second '60' is not valid"),
        ("*/0 * * * *", "minute '*/0' has a step of 0; it takes 1 to 60"),
        ("*/90 * * * *", "minute '*/90' has a step of 90; it takes 1 to 60"),
        ("* 0/25 * * *", "hour '0/25' has a step of 25; it takes 1 to 24"),
        ("5-1 * * * *", "minute '5-1' runs backwards"),
        ("* * * * FRI-SUN", "day-of-week 'FRI-SUN' runs backwards; at the end of a range Sunday is 7"),
        ("1,,2 * * * *", "minute '1,,2': '' is not valid"),
        (", * * * *", "minute ',': '' is not valid"),
        ("1,61,2 * * * *", "minute '1,61,2': '61' is not valid"),
        ("+1 * * * *", "minute '+1' is not valid"),
        ("-1 * * * *", "minute '-1' is not valid"),
        ("1.5 * * * *", "minute '1.5' is not valid"),
        ("0x5 * * * *", "minute '0X5' is not valid"),
        ("1_0 * * * *", "minute '1_0' is not valid"),
        ("? * * * *", "minute '?' is not valid"),
        ("*/ * * * *", "minute '*/' is not valid"),
        ("*/5/5 * * * *", "minute '*/5/5' is not valid"),
        ("1-2-3 * * * *", "minute '1-2-3' is not valid"),
        ("** * * * *", "minute '**' is not valid"),
        ("L * * * *", "minute 'L' is not valid"),
        ("JAN * * * *", "minute 'JAN' is not valid"),
        ("* * * MON *", "month 'MON' is not valid"),
        ("* * * JANUARY *", "month 'JANUARY' is not valid"),
        ("* * L/2 * *", "day-of-month 'L/2' is not valid"),
        ("* * LW/2 * *", "day-of-month 'LW/2' is not valid"),
        ("* * 15W * *", "day-of-month '15W' is not valid"),
        ("* * L-3 * *", "day-of-month 'L-3' is not valid"),
        ("* * * * 1#6", "day-of-week '1#6' is not valid"),
        ("* * * * 1#0", "day-of-week '1#0' is not valid"),
        ("* * * * #1", "day-of-week '#1' is not valid"),
        ("* * * * 1-5#2", "day-of-week '1-5#2' is not valid"),
        ("* * * * 8L", "day-of-week '8L' is not valid"),
        ("* * * * L", "day-of-week 'L' is not valid"),
        ("", "has 0 fields; it takes 5"),
        ("   ", "has 0 fields; it takes 5"),
        ("*", "has 1 field; it takes 5"),
        ("* * * *", "has 4 fields; it takes 5"),
        ("* * * * * * *", "has 7 fields; it takes 5"),
        ("@reboot", "no such moment for a fleet"),
        ("@every 5m", 'use Every("5m")'),
        ("@fortnightly", "the shorthands are @hourly, @daily"),
        ("@daily @daily", "the shorthands are"),
        ("* * * *\0 *", "only printable ASCII"),
        ("\0", "only printable ASCII"),
        ("* * * * *\n", "only printable ASCII"),
        ("* * *\u00a0* *", "only printable ASCII"),
        ("١ * * * *", "only printable ASCII"),
        ("² * * * *", "only printable ASCII"),
        ("0 0 * * ſun", "only printable ASCII"),
        ("0 0 * * frı", "only printable ASCII"),
        ("\ud800 * * * *", "only printable ASCII"),
        ("1" * 10_000, "of 10000 characters is too long"),
        ("9" * 900 + " * * * *", "is not valid"),
        ("*/" + "9" * 900 + " * * * *", "is not valid"),
        ("0-" + "9" * 900 + " * * * *", "is not valid"),
        (None, "a cron expression is a text"),
        (5, "a cron expression is a text"),
        (b"* * * * *", "a cron expression is a text"),
    ],
)
def test_a_bad_expression_is_refused_naming_the_field_and_the_value(expr: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        Expression.parse(expr)


def test_a_long_list_is_accepted() -> None:
    assert Expression.parse("1," * 400 + "1 * * * *").minutes == [1]


@pytest.mark.parametrize("expr", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30 2 */2", "0 0 */31 * 1#5"])
def test_a_day_that_never_comes_is_refused_at_once(expr: str) -> None:
    started = time.perf_counter()
    with pytest.raises(
        ConfigError, match=r"never comes: no day has day-of-month '\S+', month '\S+', day-of-week '\S+'"
    ):
        Expression.parse(expr)
    assert time.perf_counter() - started < 2


def test_a_huge_range_or_step_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        for expr in ("0-99999999999 * * * *", "*/99999999999 * * * *", "0-59/99999999999 * * * *"):
            with pytest.raises(ConfigError):
                Expression.parse(expr)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_expression_can_be_told_in_words() -> None:
    assert Expression.parse("30 2 * * MON-FRI").describe() == "At 02:30 on Monday through Friday"
