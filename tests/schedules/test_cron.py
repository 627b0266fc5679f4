from __future__ import annotations

import copy
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest

from tests.schedules.moments import utc, written
from tests.schedules.oracle import Oracle
from trueup.errors import ConfigError
from trueup.schedules import Cron
from trueup.schedules.cron import Dst
from trueup.schedules.zones import zone

BERLIN = "Europe/Berlin"


def ticks(cron: Cron, start: str, end: str) -> list[str]:
    return written(cron.between(utc(start), utc(end)))


def test_a_nightly_time_that_spring_skips_runs_once_right_after_the_gap() -> None:
    found = ticks(Cron("30 2 * * *", BERLIN), "2026-03-27T12:00", "2026-03-30T12:00")
    assert found == ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]


def test_a_nightly_time_that_autumn_repeats_runs_the_first_time_only() -> None:
    found = ticks(Cron("30 2 * * *", BERLIN), "2026-10-23T12:00", "2026-10-26T12:00")
    assert found == ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]


@pytest.mark.parametrize(
    "t", ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:10", "2026-10-25T01:30", "2026-10-25T01:59"]
)
def test_from_inside_a_repeated_hour_the_next_is_never_in_the_past(t: str) -> None:
    assert written([Cron("30 2 * * *", BERLIN).next_after(utc(t))]) == ["2026-10-26T01:30"]


def test_taken_literally_a_skipped_time_does_not_come_and_a_repeated_one_comes_twice() -> None:
    literal = Cron("30 2 * * *", BERLIN, dst="literal")
    assert ticks(literal, "2026-03-28T12:00", "2026-03-30T12:00") == ["2026-03-30T00:30"]
    assert ticks(literal, "2026-10-24T12:00", "2026-10-25T12:00") == ["2026-10-25T00:30", "2026-10-25T01:30"]


@pytest.mark.parametrize("expr", ["*/30 * * * *", "0,30 * * * *", "0,30 */1 * * *"])
def test_a_wildcard_follows_real_time_through_gap_and_fold(expr: str) -> None:
    spring = ticks(Cron(expr, BERLIN), "2026-03-29T00:00", "2026-03-29T02:00")
    assert spring == ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30", "2026-03-29T02:00"]
    autumn = ticks(Cron(expr, BERLIN), "2026-10-25T00:00", "2026-10-25T02:00")
    assert autumn == ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]


def test_a_wildcard_minute_within_a_skipped_hour_does_not_come() -> None:
    assert ticks(Cron("*/20 2 * * *", BERLIN), "2026-03-28T12:00", "2026-03-29T12:00") == []


def test_several_fixed_times_in_one_gap_are_one_tick() -> None:
    found = ticks(Cron("0,15,30 2,3 * * *", BERLIN), "2026-03-29T00:00", "2026-03-29T02:00")
    assert found == ["2026-03-29T01:00", "2026-03-29T01:15", "2026-03-29T01:30"]


def test_a_seconds_field_changes_nothing_about_skipped_and_repeated_times() -> None:
    cron = Cron("0 30 2 * * *", BERLIN)
    assert ticks(cron, "2026-03-28T12:00", "2026-03-29T12:00") == ["2026-03-29T01:00"]
    assert ticks(cron, "2026-10-24T12:00", "2026-10-25T12:00") == ["2026-10-25T00:30"]


@pytest.mark.parametrize(
    ("expr", "tz", "start", "end", "expected"),
    [
        # half an hour: 02:00 becomes 02:30 on 4 October, 02:00 becomes 01:30 on 5 April
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", "2026-10-04T12:00", ["2026-10-03T15:30"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00", "2026-04-05T12:00", ["2026-04-04T14:45"]),
        ("*/30 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00", "2026-04-05T00:00", ["2026-04-04T14:00", "2026-04-04T14:30", "2026-04-04T15:00"]),
        # a whole day left out: 30 December 2011
        ("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00", "2012-01-01T00:00", ["2011-12-29T19:00", "2011-12-30T10:00", "2011-12-30T19:00", "2011-12-31T19:00"]),
        ("0 9 30 * *", "Pacific/Apia", "2011-12-01T00:00", "2012-01-31T00:00", ["2011-12-30T10:00", "2012-01-29T19:00"]),
        # 23 hours lived twice
        ("0 9 * * *", "Pacific/Kwajalein", "1969-09-29T00:00", "1969-10-03T00:00", ["1969-09-29T22:00", "1969-10-01T21:00", "1969-10-02T21:00"]),
        ("*/30 4 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", "2026-04-05T12:00", ["2026-04-04T17:30", "2026-04-04T18:00"]),
        # clocks moved at midnight, so the day begins at one o'clock
        ("0 0 * * *", "America/Havana", "2026-03-07T00:00", "2026-03-09T12:00", ["2026-03-07T05:00", "2026-03-08T05:00", "2026-03-09T04:00"]),
        ("0 0 * * *", "Asia/Beirut", "2026-03-28T00:00", "2026-03-30T00:00", ["2026-03-28T22:00", "2026-03-29T21:00"]),
        ("30 0 * * *", "Asia/Beirut", "2026-03-28T00:00", "2026-03-30T00:00", ["2026-03-28T22:00", "2026-03-29T21:30"]),
        ("*/30 0 * * *", "America/Havana", "2026-03-07T12:00", "2026-03-09T04:00", ["2026-03-09T04:00"]),
        # two hours at once
        ("30 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00", "2026-03-29T12:00", ["2026-03-29T01:00"]),
        # an offset of -00:44:30 until 1972
        ("0 12 * * *", "Africa/Monrovia", "1972-01-05T00:00", "1972-01-09T00:00", ["1972-01-05T12:44:30", "1972-01-06T12:44:30", "1972-01-07T12:00", "1972-01-08T12:00"]),
        ("* * * * *", "Africa/Monrovia", "1972-01-06T12:00", "1972-01-06T12:02", ["1972-01-06T12:00:30", "1972-01-06T12:01:30"]),
        # summer is Dublin's standard time, and winter the one that is moved
        ("30 1 * * *", "Europe/Dublin", "2026-03-28T12:00", "2026-03-30T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
    ],
)  # fmt: skip
def test_zones_with_odd_changes(expr: str, tz: str, start: str, end: str, expected: list[str]) -> None:
    assert ticks(Cron(expr, tz), start, end) == expected
    assert written(Oracle(expr, zone(tz)).ticks(utc(start), utc(end))[: len(expected)]) == expected


def test_casablanca_stays_on_its_wall_clock_through_ramadan() -> None:
    found = list(Cron("30 2 * * *", "Africa/Casablanca").between(utc("2025-02-01T00:00"), utc("2025-05-01T00:00")))
    assert len(found) == 89, "one for each day, those of the changes included"
    assert set(written(found)) >= {
        "2025-02-22T01:30",
        "2025-02-23T01:30",
        "2025-02-24T02:30",
        "2025-04-06T02:00",
        "2025-04-07T01:30",
    }


def test_next_after_is_strictly_after_to_the_microsecond() -> None:
    cron = Cron("0 0 * * *")
    tick = utc("2026-01-01T00:00")
    microsecond = timedelta(microseconds=1)
    assert cron.next_after(tick - microsecond) == tick
    assert cron.next_after(tick) == tick + timedelta(days=1)
    assert cron.next_after(tick + microsecond) == tick + timedelta(days=1)


def test_a_moment_may_be_given_in_any_zone_and_the_answer_is_in_utc() -> None:
    found = Cron("0 0 * * *").next_after(datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert found == utc("2026-01-01T00:00")
    assert found is not None
    assert found.utcoffset() == timedelta()


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="t=2026-01-01T00:00:00 has no time zone"):
        Cron("0 0 * * *").next_after(datetime.fromisoformat("2026-01-01"))


def test_between_leaves_out_its_start_includes_its_end_and_stops_at_its_limit() -> None:
    cron = Cron("0 * * * *")
    start, end = utc("2026-01-01T00:00"), utc("2026-01-01T03:00")
    assert written(cron.between(start, end)) == ["2026-01-01T01:00", "2026-01-01T02:00", "2026-01-01T03:00"]
    assert written(cron.between(start, end, limit=2)) == ["2026-01-01T01:00", "2026-01-01T02:00"]
    assert list(cron.between(start, end, limit=0)) == []
    assert list(cron.between(end, start)) == []


@pytest.mark.parametrize("expr", ["* * * * *", "0 0 1 1 *"])
@pytest.mark.parametrize("tz", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def test_the_ends_of_the_calendar_are_no_trouble(expr: str, tz: str) -> None:
    cron = Cron(expr, tz)
    first = cron.next_after(datetime.min.replace(tzinfo=UTC))
    assert first is not None
    assert first.year in (1800, 1801)
    assert cron.next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert cron.next_after(utc("9998-12-31T23:59:59")) is None


def test_a_time_that_clocks_always_skip_is_refused_when_taken_literally() -> None:
    with pytest.raises(ConfigError, match="never matches in Europe/Berlin: the clocks always skip its time"):
        Cron("30 2 * 3 0L", BERLIN, dst="literal")
    assert written(
        islice(Cron("30 2 * 3 0L", BERLIN).between(utc("2026-01-01T00:00"), utc("2030-01-01T00:00")), 2)
    ) == [
        "2026-03-29T01:00",
        "2027-03-28T01:00",
    ]


@pytest.mark.parametrize(
    ("tz", "dst"), [("Europe/Berlni", "debian"), ("../../etc/passwd", "debian"), ("UTC", "vixie"), ("UTC", None)]
)
def test_a_bad_zone_or_rule_is_refused_when_declared(tz: str, dst: Any) -> None:
    with pytest.raises(ConfigError, match=r"time zone|dst="):
        Cron("0 0 * * *", tz, dst)


def test_equal_when_written_the_same_but_for_blanks() -> None:
    assert Cron("0 2 * * *", BERLIN) == Cron(" 0  2 * * * ", BERLIN)
    assert hash(Cron("0 2 * * *", BERLIN)) == hash(Cron("0  2 * * *", BERLIN))
    different: list[tuple[str, str, Dst]] = [
        ("1 2 * * *", BERLIN, "debian"),
        ("0 2 * * *", "UTC", "debian"),
        ("0 2 * * *", BERLIN, "literal"),
    ]
    assert all(Cron("0 2 * * *", BERLIN) != Cron(*other) for other in different)


def test_its_repr_makes_it_again() -> None:
    cron = Cron("0 2 * * *", BERLIN, "literal")
    assert repr(cron) == "Cron(expr='0 2 * * *', tz='Europe/Berlin', dst='literal')"
    assert eval(repr(cron)) == cron


def test_it_can_be_pickled_and_copied() -> None:
    cron = Cron("30 2 * * *", BERLIN)
    for made in (pickle.loads(pickle.dumps(cron)), copy.copy(cron), copy.deepcopy(cron)):
        assert made == cron
        assert made.next_after(utc("2026-10-25T01:10")) == utc("2026-10-26T01:30")


@pytest.mark.parametrize("expr", ["*/5 * * * *", "0,5,10,15,20,25,30,35,40,45,50,55 0-23 * * *"])
def test_a_hundred_thousand_ticks_take_a_second_or_two(expr: str) -> None:
    started = time.process_time()
    found = list(Cron(expr, BERLIN).between(utc("2026-01-01T00:00"), utc("2100-01-01T00:00"), limit=100_000))
    assert len(found) == 100_000
    assert time.process_time() - started < 5, "three times what a slow machine needs"


@pytest.mark.parametrize("dst", ["debian", "literal"])
@pytest.mark.parametrize("expr", ["0 0 29 2 *", "0 0 * 2 MON#5", "0 0 1 1 *"])
def test_the_next_of_a_rare_schedule_is_found_quickly(expr: str, dst: Dst) -> None:
    cron = Cron(expr, "America/Sao_Paulo", dst)
    started = time.process_time()
    for year in range(1990, 2100, 10):
        assert cron.next_after(utc(f"{year}-03-01T00:00")) is not None
    assert time.process_time() - started < 2
