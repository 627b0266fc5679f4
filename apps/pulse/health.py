"""How a project is doing: score, level, trend, risks, and whether an alert is due. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from .retrying import Permanent

IDEAL_HOURS = (32.0, 40.0)  # a week, for each member
TREND = 5.0  # points up or down that are more than noise
DEADLINE_WITHIN = timedelta(hours=48)


class Level(StrEnum):
    EXCELLENT = "EXCELLENT"
    GOOD = "GOOD"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"


class Trend(StrEnum):
    IMPROVING = "IMPROVING"
    STABLE = "STABLE"
    DECLINING = "DECLINING"


class Risk(StrEnum):
    DEADLINE_WARNING = "DEADLINE_WARNING"
    CAPACITY_OVERLOAD = "CAPACITY_OVERLOAD"


MIN_SCORE = {Level.EXCELLENT: 85.0, Level.GOOD: 70.0, Level.WARNING: 50.0, Level.CRITICAL: 0.0}  # best first


class UnusableFacts(Permanent):
    """Numbers that say nothing: less than none, more of something than of all of it, no number at all."""


@dataclass(frozen=True)
class Facts:
    """What is counted about a project. `due` are the tasks of the last four weeks whose time has come, `open` those not done."""

    due: int
    on_time: int
    open: int
    blocked: int
    done_7_days: int
    done_28_days: int
    hours: tuple[float, ...]  # of each member, a week
    next_due_at: datetime | None = None  # of what is not done

    def __post_init__(self) -> None:
        counts = (self.on_time, self.due, self.blocked, self.open, self.done_7_days, self.done_28_days)
        if min(counts) < 0 or any(part > whole for part, whole in zip(counts[::2], counts[1::2], strict=True)):
            raise UnusableFacts(f"counts that cannot be: {counts}")
        if not all(math.isfinite(each) and each >= 0 for each in self.hours):
            raise UnusableFacts(f"weekly hours that cannot be: {self.hours}")


@dataclass(frozen=True)
class Parts:
    """Each from 0 to 1. Of `blocked` less is better, of the others more."""

    on_time: float
    blocked: float
    capacity: float
    velocity: float

    @classmethod
    def of(cls, facts: Facts) -> Parts:
        hours = sum(facts.hours) / len(facts.hours) if facts.hours else 0.0
        return cls(
            on_time=facts.on_time / facts.due if facts.due else 1.0,
            blocked=facts.blocked / facts.open if facts.open else 0.0,
            capacity=capacity(hours),
            velocity=velocity(facts.done_7_days, facts.done_28_days, anything_left=facts.open > 0),
        )


@dataclass(frozen=True)
class Health:
    score: float
    level: Level
    trend: Trend
    risks: tuple[Risk, ...]
    parts: Parts


def judge(facts: Facts, now: datetime, previous_score: float | None) -> Health:
    parts = Parts.of(facts)
    points = score(parts)
    return Health(points, level(points), trend(points, previous_score), risks(facts, now), parts)


def score(parts: Parts) -> float:
    """From 0 to 100, to two places: the level is that of the score that is shown."""
    return round(30 * parts.on_time + 25 * (1 - parts.blocked) + 25 * parts.capacity + 20 * parts.velocity, 2)


def capacity(hours: float) -> float:
    """1 within the ideal week; less of it the fewer hours there are, and none at twice the most."""
    least, most = IDEAL_HOURS
    return min(1.0, hours / least) if hours <= most else max(0.0, 2 - hours / most)


def velocity(last_7_days: int, last_28_days: int, *, anything_left: bool) -> float:
    """Of a usual week's work, how much was done in the last one; none when nothing was done although there is something."""
    usual = last_28_days / 4
    if not usual:
        return 0.0 if anything_left else 1.0
    return min(1.0, last_7_days / usual)


def level(points: float) -> Level:
    return next(each for each, least in MIN_SCORE.items() if points >= least)


def trend(points: float, previous: float | None) -> Trend:
    """Five points are a change; less is noise, and there is none at the first look."""
    change = 0.0 if previous is None else round(points - previous, 2)
    if change >= TREND:
        return Trend.IMPROVING
    return Trend.DECLINING if change <= -TREND else Trend.STABLE


def risks(facts: Facts, now: datetime) -> tuple[Risk, ...]:
    found = []
    if facts.next_due_at is not None and facts.next_due_at <= now + DEADLINE_WITHIN:
        found.append(Risk.DEADLINE_WARNING)
    if any(each > IDEAL_HOURS[1] for each in facts.hours):
        found.append(Risk.CAPACITY_OVERLOAD)
    return tuple(found)


def alerts(before: Level | None, after: Level) -> bool:
    """Only when it got worse: neither at the first look nor when it stays as bad as it was."""
    order = list(MIN_SCORE)
    return before is not None and order.index(after) > order.index(before)
