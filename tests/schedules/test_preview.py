from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import islice

import pytest

from tests.schedules.moments import utc, written
from trueup.errors import ConfigError
from trueup.schedules import Cron
from trueup.schedules.cron import Dst
from trueup.schedules.preview import Touched, preview

BERLIN = "Europe/Berlin"


def told(touched: Iterable[Touched]) -> list[tuple[str, str, list[str]]]:
    return [(written([each.reading])[0], each.clocks, written(each.ticks)) for each in touched]


def test_a_year_of_a_nightly_time_shows_what_was_chosen_and_why() -> None:
    found = list(preview(Cron("30 2 * * *", BERLIN), 2026))
    assert found == [
        Touched(
            utc("2026-03-29T02:30").replace(tzinfo=None),
            "gap",
            utc("2026-03-29T01:00"),
            (utc("2026-03-29T01:00"),),
            "clocks skip it: due once, right after the gap",
        ),
        Touched(
            utc("2026-10-25T02:30").replace(tzinfo=None),
            "fold",
            utc("2026-10-25T01:00"),
            (utc("2026-10-25T00:30"),),
            "clocks show it twice: due the first time",
        ),
    ]


def test_a_year_of_a_nightly_time_taken_literally() -> None:
    found = list(preview(Cron("30 2 * * *", BERLIN, "literal"), 2026))
    assert told(found) == [
        ("2026-03-29T02:30", "gap", []),
        ("2026-10-25T02:30", "fold", ["2026-10-25T00:30", "2026-10-25T01:30"]),
    ]
    assert [each.why for each in found] == [
        "clocks skip it: not due (literal)",
        "clocks show it twice: due both times (literal)",
    ]


def test_a_wildcard_says_that_it_follows_real_time() -> None:
    found = list(preview(Cron("*/30 * * * *", BERLIN), 2026))
    assert [each.ticks == () for each in found] == [True, True, False, False]
    assert all("a star in the minute or hour follows real time" in each.why for each in found)


def test_times_in_one_gap_share_their_tick() -> None:
    found = told(preview(Cron("0,30 2 * 3 *", BERLIN), 2026))
    assert found == [
        ("2026-03-29T02:00", "gap", ["2026-03-29T01:00"]),
        ("2026-03-29T02:30", "gap", ["2026-03-29T01:00"]),
    ]


@pytest.mark.parametrize(("expr", "tz"), [("30 12 * * *", BERLIN), ("30 2 * * *", "UTC"), ("30 2 * * *", "Asia/Tokyo")])
def test_what_no_change_touches_is_not_listed(expr: str, tz: str) -> None:
    assert list(preview(Cron(expr, tz), 2026)) == []


def test_a_day_that_was_left_out_is_a_gap() -> None:
    found = told(preview(Cron("0 9 * * *", "Pacific/Apia"), 2011))
    assert found == [("2011-12-30T09:00", "gap", ["2011-12-30T10:00"])]


def test_a_change_at_the_turn_of_the_year_belongs_to_one_year() -> None:
    cron = Cron("0 9 * * *", "Pacific/Kiritimati")  # left out 31 December 1994, at 10:00 of UTC
    assert [told(preview(cron, year)) for year in (1993, 1994, 1995)] == [
        [],
        [("1994-12-31T09:00", "gap", ["1994-12-31T10:00"])],
        [],
    ]


def test_a_schedule_for_every_second_is_listed_as_it_is_asked_for() -> None:
    assert len(list(islice(preview(Cron("* * * * * *", BERLIN), 2026), 10))) == 10


@pytest.mark.parametrize("dst", ["debian", "literal"])
@pytest.mark.parametrize("expr", ["30 2 * * *", "15,45 1-3 * * *", "*/20 * * * *", "0 0 * * *"])
@pytest.mark.parametrize("tz", [BERLIN, "Australia/Lord_Howe", "America/Havana", "Antarctica/Troll"])
def test_what_is_shown_is_what_happens(expr: str, tz: str, dst: Dst) -> None:
    cron = Cron(expr, tz, dst)
    for touched in preview(cron, 2026):
        for tick in touched.ticks:
            assert cron.next_after(tick - timedelta(microseconds=1)) == tick


@pytest.mark.parametrize("year", [0, 1800, 9998, 10_000])
def test_a_year_without_a_calendar_is_refused(year: int) -> None:
    with pytest.raises(ConfigError, match=f"year={year} is not from"):
        preview(Cron("30 2 * * *", BERLIN), year)
