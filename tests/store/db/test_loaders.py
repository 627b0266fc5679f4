"""What Python cannot hold becomes the nearest that it can, and all else is as the driver has it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import psycopg
import pytest

from trueup.store.db import loaders

BEYOND: list[tuple[str, Any]] = [
    ("timestamptz 'infinity'", datetime.max.replace(tzinfo=UTC)),
    ("timestamptz '-infinity'", datetime.min.replace(tzinfo=UTC)),
    ("timestamptz '0044-03-15 12:00Z BC'", datetime.min.replace(tzinfo=UTC)),
    ("timestamptz '20000-01-01Z'", datetime.max.replace(tzinfo=UTC)),
    ("timestamptz '9999-12-31 23:59:59Z' + interval '20 h'", datetime.max.replace(tzinfo=UTC)),
    ("timestamp 'infinity'", datetime.max),  # noqa: DTZ901 - as the column: without a zone
    ("timestamp '-infinity'", datetime.min),  # noqa: DTZ901
    ("timestamp '0044-03-15 BC'", datetime.min),  # noqa: DTZ901
    ("date 'infinity'", date.max),
    ("date '-infinity'", date.min),
    ("date '0044-03-15 BC'", date.min),
    ("date '20000-01-01'", date.max),
    ("time '24:00'", time.max),
    ("timetz '24:00+02'", time.max.replace(tzinfo=UTC)),
    ("interval '1000000000 days'", timedelta.max),
    ("interval '-1000000000 days'", timedelta.min),
    ("interval '100000000 years'", timedelta.max),
]


@pytest.mark.matrix
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize(("expression", "nearest"), BEYOND, ids=[expression for expression, _ in BEYOND])
def test_the_nearest_there_is(database_url: str, zone: str, expression: str, nearest: Any) -> None:
    with psycopg.connect(database_url, context=loaders.context()) as connection:
        connection.execute(f"set timezone = '{zone}'")
        row = connection.execute(f"select {expression}, array[{expression}]").fetchone()
    assert row == (nearest, [nearest])


SAME = [
    "timestamptz '2026-06-01 12:00:00.123456Z'",
    "timestamptz '0001-01-02Z'",
    "timestamptz '1880-01-01Z'",
    "timestamp '2026-06-01 12:00'",
    "date '2026-06-01'",
    "date '9999-12-31'",
    "time '23:59:59.999999'",
    "timetz '12:00+05:30'",
    "interval '1 year 2 mons -3 days 04:05:06.7'",
    "interval '-1 s'",
    "null::timestamptz",
    "tstzrange('2026-06-01Z', null)",
]


@pytest.mark.parametrize("expression", SAME)
def test_all_else_is_as_the_driver_has_it(database_url: str, expression: str) -> None:
    query = f"select {expression}, array[{expression}]"
    with psycopg.connect(database_url, context=loaders.context()) as connection, psycopg.connect(database_url) as plain:
        for each in (connection, plain):
            each.execute("set timezone = 'America/New_York'")
        assert connection.execute(query).fetchone() == plain.execute(query).fetchone()


def test_a_range_may_end_at_infinity(database_url: str) -> None:
    with psycopg.connect(database_url, context=loaders.context()) as connection:
        row = connection.execute("select tstzrange('-infinity', 'infinity', '[]')").fetchone()
    assert row is not None
    assert (row[0].lower, row[0].upper) == (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def test_connections_made_without_it_are_as_they_were(database_url: str) -> None:
    loaders.context()
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.DataError):
        connection.execute("select timestamptz 'infinity'").fetchone()


@pytest.mark.parametrize("value", ["{" + '"a": ' + "9" * 6000 + "}", "[" * 3000 + "]" * 3000], ids=["digits", "depth"])
def test_json_that_python_cannot_read_is_a_text_in_tables_of_ours_alone(database_url: str, value: str) -> None:
    with psycopg.connect(database_url, context=loaders.context_of_ours()) as connection:
        assert connection.execute("select %s::jsonb, '{\"a\": 1}'::jsonb", [value]).fetchone() == (value, {"a": 1})
    with (
        psycopg.connect(database_url, context=loaders.context()) as connection,
        pytest.raises((ValueError, RecursionError)),
    ):
        connection.execute("select %s::jsonb", [value]).fetchone()
