"""Verdicts on the ticks that are due, many of which may have been missed while no worker was running.

A tick is missed when it is late by more than `grace`. One that is not is always fired. `missed` decides about missed ones:

- `latest`: one run makes up for all of them. It is the next tick that is not missed, or else the last of those that are;
  the others are skipped as "coalesced".
- `all`: each is fired, oldest first, if it was due within `catch_up`; the older ones are skipped as "outside catch_up".
- `skip`: each is skipped as "missed".

Ticks that were due during a pause are skipped as "paused". Every tick gets a verdict; one plan looks at a bounded number of
them and then says that there are more, so a million missed ticks are many short transactions and not one long one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeAlias, get_args

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.schedules.offsets import MICROSECOND
from trueup.schedules.when import When, in_utc

Missed: TypeAlias = Literal["latest", "all", "skip"]

MAX_LOOKED_AT = 1_000  # ticks in one plan: some 20 ms, in which the event loop and other schedules wait
MAX_FIRED = 1_000  # in one plan: each becomes a job in the same transaction


class Reason(StrEnum):
    """Why a tick was skipped."""

    COALESCED = "coalesced"
    OUTSIDE_CATCH_UP = "outside catch_up"
    MISSED = "missed"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class MisfirePolicy:
    """What to do with missed ticks; see the top of this module."""

    missed: Missed = "latest"
    catch_up: timedelta = timedelta(days=1)
    grace: timedelta = timedelta(seconds=60)

    @classmethod
    def parse(cls, missed: Missed = "latest", catch_up: Duration = "1d", grace: Duration = "60s") -> MisfirePolicy:
        """The declared policy. Raises ConfigError that names the invalid part."""
        if missed not in get_args(Missed):
            raise ConfigError(f'missed={missed!r}: it is "latest", "all" or "skip"')
        return cls(missed, duration_of("catch_up", catch_up), duration_of("grace", grace))


@dataclass(frozen=True, slots=True)
class PausedSpan:
    """From `start` until `end`, which it does not include; without an `end` it goes on."""

    start: datetime
    end: datetime | None = None

    def covers(self, moment: datetime) -> bool:
        return self.start <= moment and (self.end is None or moment < self.end)


@dataclass(frozen=True, slots=True)
class Fire:
    due_at: datetime
    lateness: timedelta


@dataclass(frozen=True, slots=True)
class Skip:
    """`count` ticks in a row, the first due at `first` and the last at `last`, skipped for one reason.

    All are of one day in UTC: the ledger is pruned by day, and a row for ticks of two days would take the verdicts of the later
    day with it.
    """

    first: datetime
    last: datetime
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """The verdicts, oldest first, on all ticks after the old watermark up to the new one.

    `next_due` is the first tick without a verdict: in the future, or due already when there is `more`. None: there is no other.
    """

    verdicts: tuple[Fire | Skip, ...]
    watermark: datetime
    next_due: datetime | None
    more: bool


def plan(
    when: When,
    watermark: datetime,
    now: datetime,
    policy: MisfirePolicy,
    pauses: Sequence[PausedSpan] = (),
    *,
    most_looked_at: int = MAX_LOOKED_AT,
    most_fired: int = MAX_FIRED,
) -> Plan:
    """Decide about the ticks after `watermark` up to and including `now`.

    `watermark` is the last tick that has a verdict, or else the time the schedule was declared or changed: ticks up to then are
    never decided again. When `now` is before it nothing is decided.
    """
    watermark, now = in_utc(watermark, "watermark"), in_utc(now, "now")
    verdicts: list[Fire | Skip] = []
    looked_at = fired = 0
    tick = when.next_after(watermark)
    while tick is not None and tick <= now and looked_at < most_looked_at and fired < most_fired:
        following = when.next_after(tick)
        reason = _reason_to_skip(when, tick, following, now, policy, pauses)
        if reason is None:
            verdicts.append(Fire(tick, now - tick))
            fired += 1
        else:
            _add_skip(verdicts, tick, reason)
        looked_at += 1
        watermark, tick = tick, following
    return Plan(tuple(verdicts), watermark, tick, more=tick is not None and tick <= now)


def _reason_to_skip(
    when: When,
    tick: datetime,
    following: datetime | None,
    now: datetime,
    policy: MisfirePolicy,
    pauses: Sequence[PausedSpan],
) -> Reason | None:
    if _pause_over(tick, pauses):
        return Reason.PAUSED
    if now - tick <= policy.grace:
        return None
    match policy.missed:
        case "latest":
            return Reason.COALESCED if _another_is_due(when, following, now, pauses) else None
        case "all":
            return None if now - tick <= policy.catch_up else Reason.OUTSIDE_CATCH_UP
        case "skip":
            return Reason.MISSED


def _another_is_due(when: When, tick: datetime | None, now: datetime, pauses: Sequence[PausedSpan]) -> bool:
    """Whether `tick` or a later one is due and was not paused, and so can make up for those before it."""
    while tick is not None and tick <= now:
        pause = _pause_over(tick, pauses)
        if pause is None:
            return True
        tick = None if pause.end is None else when.next_after(pause.end - MICROSECOND)
    return False


def _pause_over(tick: datetime, pauses: Sequence[PausedSpan]) -> PausedSpan | None:
    return next((pause for pause in pauses if pause.covers(tick)), None)


def _add_skip(verdicts: list[Fire | Skip], tick: datetime, reason: Reason) -> None:
    last = verdicts[-1] if verdicts else None
    if isinstance(last, Skip) and last.reason is reason and last.first.date() == tick.date():
        verdicts[-1] = Skip(last.first, tick, last.count + 1, reason)
    else:
        verdicts.append(Skip(tick, tick, 1, reason))
