"""Score, level, trend, risks and alerts: exact where numbers are named, and sensible everywhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.pulse.health import (
    Facts,
    Level,
    Parts,
    Risk,
    Trend,
    UnusableFacts,
    alerts,
    capacity,
    judge,
    level,
    risks,
    score,
    trend,
    velocity,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
WELL = Facts(due=10, on_time=10, open=5, blocked=0, done_7_days=5, done_28_days=20, hours=(36.0,))

moments = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - they get it
part = st.floats(0, 1)
parts = st.builds(Parts, part, part, part, part)


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    due, open_, done = (draw(st.integers(0, 10_000)) for _ in range(3))
    return Facts(
        due=due,
        on_time=draw(st.integers(0, due)),
        open=open_,
        blocked=draw(st.integers(0, open_)),
        done_7_days=draw(st.integers(0, done)),
        done_28_days=done,
        hours=tuple(draw(st.lists(st.floats(0, 1e6), max_size=5))),
        next_due_at=draw(st.none() | moments),
    )


@given(facts(), st.none() | st.floats(0, 100))
def test_every_project_gets_a_score_from_0_to_100_and_the_level_of_that_score(
    facts: Facts, previous: float | None
) -> None:
    health = judge(facts, NOW, previous)
    assert 0 <= health.score <= 100
    assert health.level is level(health.score)


@pytest.mark.parametrize("name", ["on_time", "blocked", "capacity", "velocity"])
@given(parts=parts, other=part)
def test_the_score_never_falls_when_one_part_gets_better(name: str, parts: Parts, other: float) -> None:
    worse, better = sorted((getattr(parts, name), other), reverse=name == "blocked")
    assert score(replace(parts, **{name: worse})) <= score(replace(parts, **{name: better}))


@pytest.mark.parametrize(
    ("parts", "points"),
    [
        (Parts(1, 0, 1, 1), 100.0),
        (Parts(0, 1, 0, 0), 0.0),
        (Parts(1, 1, 0, 0), 30.0),
        (Parts(0, 0, 0, 0), 25.0),
        (Parts(0, 1, 1, 0), 25.0),
        (Parts(0, 1, 0, 1), 20.0),
        (Parts(0.5, 0.2, 0.5, 0.25), 52.5),
    ],
)
def test_the_score_is_30_25_25_20(parts: Parts, points: float) -> None:
    assert score(parts) == points


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (100.0, Level.EXCELLENT),
        (85.0, Level.EXCELLENT),
        (84.99, Level.GOOD),
        (70.0, Level.GOOD),
        (69.99, Level.WARNING),
        (50.0, Level.WARNING),
        (49.99, Level.CRITICAL),
        (0.0, Level.CRITICAL),
    ],
)
def test_a_level_begins_exactly_at_its_boundary(points: float, expected: Level) -> None:
    assert level(points) is expected


@pytest.mark.parametrize(
    ("points", "previous", "expected"),
    [
        (50.0, None, Trend.STABLE),
        (55.0, 50.0, Trend.IMPROVING),
        (54.99, 50.0, Trend.STABLE),
        (45.0, 50.0, Trend.DECLINING),
        (45.01, 50.0, Trend.STABLE),
        (70.3, 65.3, Trend.IMPROVING),
    ],
)
def test_five_points_are_a_trend(points: float, previous: float | None, expected: Trend) -> None:
    assert trend(points, previous) is expected


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(0, 0.0), (16, 0.5), (32, 1.0), (36, 1.0), (40, 1.0), (60, 0.5), (80, 0.0), (1000, 0.0)],
)
def test_from_32_to_40_hours_is_ideal(hours: float, expected: float) -> None:
    assert capacity(hours) == expected


@given(st.lists(st.floats(0, 200), min_size=2, max_size=2))
def test_capacity_grows_up_to_the_ideal_and_falls_beyond_it(hours: list[float]) -> None:
    for fewer, more in pairwise(sorted(hours)):
        assert capacity(fewer) <= capacity(more) or more > 40
        assert capacity(fewer) >= capacity(more) or fewer < 32


@pytest.mark.parametrize(
    ("week", "month", "left", "expected"),
    [
        (5, 20, True, 1.0),
        (2, 16, True, 0.5),
        (0, 20, True, 0.0),
        (20, 20, True, 1.0),
        (0, 0, True, 0.0),
        (0, 0, False, 1.0),
    ],
)
def test_velocity_compares_a_week_with_a_quarter_of_four(week: int, month: int, left: bool, expected: float) -> None:
    assert velocity(week, month, anything_left=left) == expected


@pytest.mark.parametrize(
    ("left", "found"),
    [
        (timedelta(hours=48), [Risk.DEADLINE_WARNING]),
        (timedelta(hours=48, microseconds=1), []),
        (-timedelta(days=3), [Risk.DEADLINE_WARNING]),
        (None, []),
    ],
)
def test_what_is_due_within_48_hours_is_a_risk(left: timedelta | None, found: list[Risk]) -> None:
    assert list(risks(replace(WELL, next_due_at=None if left is None else NOW + left), NOW)) == found


@pytest.mark.parametrize(
    ("hours", "found"), [((40.0,), []), ((40.1,), [Risk.CAPACITY_OVERLOAD]), ((8.0, 41.0), [Risk.CAPACITY_OVERLOAD])]
)
def test_a_member_with_more_than_40_hours_is_a_risk_whatever_the_average(
    hours: tuple[float, ...], found: list[Risk]
) -> None:
    assert list(risks(replace(WELL, hours=hours), NOW)) == found


def test_somebody_is_alerted_only_when_the_level_falls() -> None:
    order = list(Level)
    for before, after in product(order, order):
        assert alerts(before, after) == (order.index(after) > order.index(before))
    assert not any(alerts(None, after) for after in order), "there is nothing to compare with at the first look"


def test_a_project_without_anything_is_judged_all_the_same() -> None:
    nothing = Facts(due=0, on_time=0, open=0, blocked=0, done_7_days=0, done_28_days=0, hours=())
    health = judge(nothing, NOW, None)
    assert (health.score, health.level, health.risks) == (75.0, Level.GOOD, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_time": 11},
        {"blocked": 6},
        {"done_7_days": 21},
        {"due": -1, "on_time": -1},
        {"hours": (float("nan"),)},
        {"hours": (float("inf"),)},
        {"hours": (-1.0,)},
    ],
)
def test_numbers_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UnusableFacts):
        replace(WELL, **wrong)  # type: ignore[arg-type]
