"""Charts can be read: round numbers at the side, and round times below, where they are."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from trueup.web.dashboard import charts

NOON = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def readings(drawn: str) -> list[tuple[float, str]]:
    return [(float(at), text) for at, text in re.findall(r'<text x="([\d.]+)%"[^>]*>([^<]+)</text>', drawn)]


def side(drawn: str) -> list[str]:
    return re.findall(r'<span class="y">([^<]*)</span>', drawn)


@pytest.mark.parametrize(
    ("length", "texts"),
    [
        (timedelta(hours=1), ["11:20", "11:30", "11:40", "11:50", "12:00", "12:10"]),
        (timedelta(hours=6), ["07:00", "08:00", "09:00", "10:00", "11:00", "12:00"]),
        (timedelta(hours=24), ["16:00", "20:00", "Nov 18", "04:00", "08:00"]),
        (timedelta(days=7), ["Nov 13", "Nov 15", "Nov 17"]),
        (timedelta(days=4000), None),
        (timedelta(seconds=1), []),
    ],
)
def test_the_clock_is_read_at_round_times_wherever_a_chart_begins(length: timedelta, texts: list[str] | None) -> None:
    until = NOON + timedelta(minutes=13, seconds=7)
    found = readings(charts.axis(until - length, until))
    assert len(found) <= charts.MAX_READINGS
    if texts is not None:
        assert [text for _, text in found] == texts
    for at, text in found:
        moment = until - length + length * at / 100
        assert (
            text == "Nov 18" or length > timedelta(days=1) or abs((moment.minute - int(text[-2:]) + 30) % 60 - 30) <= 1
        )


@pytest.mark.parametrize("minutes", range(0, 60, 7))
@pytest.mark.parametrize("hours", [1, 6, 24])
def test_no_two_readings_touch_on_a_phone(hours: int, minutes: int) -> None:
    """A chart is 290 pixels wide there, a digit 6.5."""
    until = NOON + timedelta(hours=12, minutes=minutes, seconds=1)
    ends = -20.0
    for at, anchor, text in re.findall(
        r'<text x="([\d.]+)%" y="1em"(?: class="(\w+)")?>([^<]+)<', charts.axis(until - timedelta(hours=hours), until)
    ):
        wide = 6.5 * len(text)
        begins = 2.9 * float(at) - wide * {"start": 0, "": 0.5, "end": 1}[anchor]
        assert begins > ends
        ends = begins + wide


@pytest.mark.parametrize(
    ("most", "texts"),
    [(0.3, ["400ms", "200ms", "0"]), (37, ["1m", "30s", "0"]), (4000, ["2h", "1h", "0"]), (9e5, ["11d", "5d", "0"])],
)
def test_lengths_of_time_are_written_as_such(most: float, texts: list[str]) -> None:
    assert side(charts.line("lateness", [NOON, NOON + timedelta(hours=1)], [0.0, most], "warn", seconds=True)) == texts


@pytest.mark.parametrize(
    ("most", "texts"), [(0, ["1", "", "0"]), (3, ["4", "2", "0"]), (48_213, ["60.0k", "30.0k", "0"])]
)
def test_numbers_are_round_and_there_is_no_half_of_a_job(most: float, texts: list[str]) -> None:
    assert side(charts.bars("ended", [NOON], [("done", "ok", [most])], timedelta(minutes=1))) == texts


def test_values_stand_where_their_moments_are() -> None:
    moments = [NOON, NOON + timedelta(minutes=1), NOON + timedelta(hours=1)]  # nothing ran between
    drawn = charts.line("lateness", moments, [0.0, 0.0, 0.0], "warn")
    assert re.findall(r'<polyline [^>]*points="([^"]+)"', drawn) == ["0.0,80.0 12.0,80.0 720.0,80.0"]
