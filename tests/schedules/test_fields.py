from __future__ import annotations

import re
import time
import tracemalloc
from typing import Any

import pytest

from trueup.errors import ConfigError
from trueup.schedules.cron import Expression


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
        ("@reboot", "a fleet has no single start"),
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
        (None, "a text such as"),
        (5, "a text such as"),
        (b"* * * * *", "a text such as"),
    ],
)
def test_a_bad_expression_is_refused_naming_the_field_and_the_value(expr: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        Expression.parse(expr)


def test_a_long_list_is_accepted() -> None:
    assert Expression.parse("1," * 400 + "1 * * * *").minutes == [1]


@pytest.mark.parametrize("expr", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30 2 */2", "0 0 */31 * 1#5"])
def test_a_day_that_never_comes_is_refused_at_once(expr: str) -> None:
    started = time.thread_time()
    with pytest.raises(
        ConfigError, match=r"never comes: no day has day-of-month '\S+', month '\S+', day-of-week '\S+'"
    ):
        Expression.parse(expr)
    assert time.thread_time() - started < 2


def test_a_huge_range_or_step_allocates_nothing() -> None:
    tracemalloc.start()
    try:
        for expr in ("0-99999999999 * * * *", "*/99999999999 * * * *", "0-59/99999999999 * * * *"):
            with pytest.raises(ConfigError):
                Expression.parse(expr)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
