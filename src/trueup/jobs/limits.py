"""Fleet-wide limits of a kind: concurrency limit, rate limit, and fairness between keys.

A kind with any of them has its own lane (`@kind`). Claims through a lane happen one at a time for the whole fleet,
under a lock on the lane's row, so the limits hold at every instant. Pure: the numbers come from the lane's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trueup.durations import Rate
from trueup.errors import ConfigError
from trueup.options import naming, whole, wrong

LANE_PREFIX = "@"
AHEAD = timedelta(milliseconds=250)  # starts are granted this far ahead, so that a steady rate needs few claims


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `total` running at once in the whole fleet, and at most `per_key` for one `fair_by` key."""

    total: int | None = None
    per_key: int | None = None

    def __post_init__(self) -> None:
        for name in ("total", "per_key"):
            if (value := getattr(self, name)) is not None:
                whole(f"Limit: {name}", value)
        if self.total is None and self.per_key is None:
            raise ConfigError("Limit(): give total=, per_key= or both")


@dataclass(frozen=True, slots=True)
class Controls:
    """The limits that a kind declares; all empty for a plain kind."""

    limit: Limit | None = None
    rate: Rate | None = None
    fair_by: str | None = None

    @classmethod
    def parse(
        cls,
        kind: str,
        limit: int | Limit | None,
        rate: str | Rate | None,
        fair_by: str | None,
        parameters: Sequence[str],
    ) -> Controls:
        with naming(f"job {kind!r}: limit"):
            limit = Limit(total=limit) if isinstance(limit, int) else limit
        if limit is not None and not isinstance(limit, Limit):
            raise wrong(f"job {kind!r}: limit", limit, "a whole number from 1 or a Limit")
        if fair_by is not None and fair_by not in parameters:
            raise ConfigError(
                f"job {kind!r}: fair_by={fair_by!r} is not one of its arguments ({', '.join(parameters) or 'it has none'})"
            )
        if limit is not None and limit.per_key is not None and fair_by is None:
            raise ConfigError(f"job {kind!r}: Limit(per_key=…) needs fair_by= to say what the key is")
        with naming(f"job {kind!r}: rate"):
            return cls(limit, None if rate is None else Rate.parse(rate), fair_by)

    @property
    def any(self) -> bool:
        return self.limit is not None or self.rate is not None or self.fair_by is not None

    def lane(self, kind: str, queue: str) -> str:
        return f"{LANE_PREFIX}{kind}" if self.any else queue


@dataclass(frozen=True, slots=True)
class Grant:
    """The slots of a lane's next starts, and how long to wait when there is none yet."""

    now: datetime
    slots: tuple[datetime, ...]
    wait: timedelta | None = None

    def start_after(self, position: int) -> timedelta:
        """How long after `now` the job at this position may start."""
        return max(self.slots[position] - self.now, timedelta())

    def next_start_at(self, used: int, rate: Rate | None) -> datetime | None:
        """The lane's next free slot after the first `used` were taken; None when it stays as it was."""
        return None if rate is None or used == 0 else self.slots[used - 1] + rate.spacing


def grant(rate: Rate | None, next_start_at: datetime | None, now: datetime, most: int) -> Grant:
    """Up to `most` slots, the first not before `next_start_at`, none further ahead than AHEAD.

    Slots are `rate.spacing` apart, so any window of `rate.per` holds at most `rate.count` starts (plus `burst - 1` where a
    burst is declared). Unused slots do not accumulate beyond the burst.
    """
    if rate is None:
        return Grant(now, (now,) * most)
    earliest = now - rate.spacing * (rate.burst - 1)
    slot = earliest if next_start_at is None else max(next_start_at, earliest)
    if slot > now + AHEAD + rate.spacing:  # no slot is granted that far ahead: the clock was set back since
        slot = now
    slots: list[datetime] = []
    while len(slots) < most and slot <= now + AHEAD:
        slots.append(slot)
        slot += rate.spacing
    return Grant(now, tuple(slots), None if slots else slot - now - AHEAD)
