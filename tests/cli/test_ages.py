from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from trueup.cli.ages import ago, span

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "0.0s"),
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (10, "10s"),
        (59.6, "1m"),
        (61, "1m1s"),
        (3600, "1h"),
        (7500, "2h5m"),
        (90061, "1d1h"),
        (86_405, "1d"),
    ],
)
def test_a_span_shows_its_two_largest_units(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_the_texts_of_checks_have_lengths_of_time_in_the_same_form(database_url: str) -> None:
    lengths = [10, 61, 599, 3600, 7500, 86_400, 90_061, 86_405, 10**9]
    asked = "select seconds, trueup.span_text(seconds * interval '1 second') from unnest(%s::bigint[]) as seconds"
    with psycopg.connect(database_url) as connection:
        assert dict(connection.execute(asked, [lengths]).fetchall()) == {each: span(each) for each in lengths}
        odd = "select trueup.span_text(interval '-1 day'), trueup.span_text(interval '1000000000 days')"
        assert connection.execute(odd).fetchone() == ("0s", "1000000d")


def test_what_is_still_to_come_is_not_said_to_be_past() -> None:
    assert ago(NOON + timedelta(minutes=5), NOON) == "in 5m"
    assert ago(NOON - timedelta(minutes=5), NOON) == "5m ago"
