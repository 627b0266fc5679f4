"""I15, and agreement with the oracle: all zones, 1970 to 2100, mostly around the moments at which clocks are moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.schedules.oracle import Oracle, clock_changes
from tests.support.matrix import count
from trueup.errors import ConfigError
from trueup.schedules import Cron
from trueup.schedules.cron import Dst
from trueup.schedules.zones import zone, zone_names

DSTS: st.SearchStrategy[Dst] = st.sampled_from(["debian", "literal"])
FEW = settings(max_examples=count(40, proof=200))
MANY = settings(FEW, max_examples=count(100, proof=500))
SECOND = timedelta(seconds=1)


def numbers(first: int, last: int) -> st.SearchStrategy[str]:
    """One field: a number, a range, a list, a step or a star."""
    number = st.integers(first, last)
    pairs = st.tuples(number, number).map(sorted)
    return st.one_of(
        number.map(str),
        st.just("*"),
        st.integers(1, last).map(lambda step: f"*/{step}"),
        pairs.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        pairs.map(lambda ends: f"{ends[0]},{ends[1]}"),
        st.tuples(pairs, st.integers(1, 7)).map(lambda drawn: f"{drawn[0][0]}-{drawn[0][1]}/{drawn[1]}"),
        st.tuples(number, st.integers(1, last)).map(lambda drawn: f"{drawn[0]}/{drawn[1]}"),
    )


MINUTES = numbers(0, 59)
HOURS = st.one_of(numbers(0, 23), st.integers(0, 3).map(str))  # clocks are mostly moved in the small hours
DATES = st.one_of(st.just("*"), numbers(1, 31), st.sampled_from(["L", "LW", "15,L"]))
MONTHS = st.one_of(st.just("*"), numbers(1, 12), st.sampled_from(["MAR", "OCT-NOV", "JAN,JUL"]))
WEEKDAYS = st.one_of(
    st.just("*"), numbers(0, 7), st.sampled_from(["SUN", "MON-FRI", "0L", "7L", "SUN#1", "7#2", "5#5", "1,3#1"])
)
FIXED = st.tuples(st.integers(0, 59), st.integers(0, 3)).map(lambda drawn: f"{drawn[0]} {drawn[1]} * * *")
DAILY = st.one_of(FIXED, st.tuples(MINUTES, HOURS).map(lambda fields: f"{fields[0]} {fields[1]} * * *"))
ANY = st.tuples(MINUTES, HOURS, DATES, MONTHS, WEEKDAYS).map(" ".join)
WITH_SECONDS = st.tuples(numbers(0, 59), MINUTES, HOURS).map(lambda fields: f"{' '.join(fields)} * * *")


@cache
def changes_of(name: str, year: int) -> list[datetime]:
    return clock_changes(zone(name), year, year + 4)


@st.composite
def places(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone, and a moment that is near a change of its clocks when there is one in the years drawn."""
    name = draw(st.sampled_from(sorted(zone_names())))
    year = draw(st.integers(1970, 2096))
    moved = changes_of(name, year)
    near = draw(st.sampled_from(moved)) if moved else datetime(year, draw(st.integers(1, 12)), 15, tzinfo=UTC)
    return name, near + draw(st.integers(-30 * 3600, 10 * 3600)) * SECOND


def cron(expr: str, tz: str, dst: Dst) -> Cron | None:
    try:
        return Cron(expr, tz, dst)
    except ConfigError as error:
        if "never comes" not in str(error):
            raise
        return None


@pytest.mark.slow
@MANY
@given(DAILY, places(), DSTS)
def test_ticks_around_a_change_of_clocks_are_those_of_a_minute_by_minute_scan(
    expr: str, place: tuple[str, datetime], dst: Dst
) -> None:
    name, start = place
    schedule = cron(expr, name, dst)
    end = start + timedelta(hours=32)
    expected = Oracle(expr, zone(name), dst).ticks(start, end)
    assert (list(schedule.between(start, end)) if schedule else []) == expected


@FEW
@given(ANY, places(), DSTS)
def test_any_expression_agrees_with_a_minute_by_minute_scan(expr: str, place: tuple[str, datetime], dst: Dst) -> None:
    name, start = place
    schedule = cron(expr, name, dst)
    end = start + timedelta(days=3)
    expected = Oracle(expr, zone(name), dst).ticks(start, end)
    assert (list(schedule.between(start, end)) if schedule else []) == expected


@pytest.mark.slow
@settings(FEW, max_examples=count(5, proof=20))
@given(WITH_SECONDS, places(), DSTS)
def test_an_expression_with_seconds_agrees_with_a_second_by_second_scan(
    expr: str, place: tuple[str, datetime], dst: Dst
) -> None:
    name, start = place
    schedule = cron(expr, name, dst)
    end = start + timedelta(hours=12)
    expected = Oracle(expr, zone(name), dst).ticks(start, end)
    assert (list(schedule.between(start, end)) if schedule else []) == expected


@MANY
@given(st.one_of(ANY, WITH_SECONDS), places(), DSTS, st.floats(0, 1))
def test_next_is_later_and_constant_between_two_ticks(
    expr: str, place: tuple[str, datetime], dst: Dst, part: float
) -> None:
    name, t = place
    schedule = cron(expr, name, dst)
    tick = schedule and schedule.next_after(t)
    following = schedule and tick and schedule.next_after(tick)
    if not schedule or not tick or not following:
        return
    assert t < tick < following
    inside = tick + (following - tick) * part
    assert schedule.next_after(min(inside, following - timedelta(microseconds=1))) == following
    assert schedule.next_after(t + (tick - t) * part * 0.999) == tick
    assert schedule.next_after(following - timedelta(microseconds=1)) == following


@MANY
@given(FIXED, places())
@example("0 0 * * *", ("Pacific/Kanton", datetime(1994, 12, 31, 11, tzinfo=UTC)))
@example("0 9 * * *", ("Pacific/Apia", datetime(2011, 12, 30, 11, tzinfo=UTC)))
def test_a_daily_time_comes_once_for_each_date_whatever_clocks_do(expr: str, place: tuple[str, datetime]) -> None:
    name, t = place
    schedule = Cron(expr, name)
    start = t - timedelta(days=5)
    found = list(schedule.between(start, start + timedelta(days=10)))
    assert 9 <= len(found) <= 11, "ten, but for where a day that was left out or lived twice meets the ends"
    dates = [tick.astimezone(zone(name)).date() for tick in found]
    lived = {(start + timedelta(hours=hour)).astimezone(zone(name)).date() for hour in range(24 * 10)}
    for earlier, later in pairwise(dates):
        between = {earlier + timedelta(days=day) for day in range(1, (later - earlier).days)}
        assert not between & lived, "only a date that the zone left out has no tick (Pacific/Kanton, 1994-12-31)"


def test_the_scan_itself_keeps_to_the_examples_of_the_rule() -> None:
    berlin = zone("Europe/Berlin")
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    day = timedelta(days=1)
    assert Oracle("30 2 * * *", berlin).next_after(spring, day) == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert Oracle("30 2 * * *", berlin, "literal").next_after(spring, day) is None
    assert Oracle("30 2 * * *", berlin).ticks(autumn, autumn + day) == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]
    assert len(Oracle("30 2 * * *", berlin, "literal").ticks(autumn, autumn + day)) == 2
