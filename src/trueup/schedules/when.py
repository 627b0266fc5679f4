"""The interface of every kind of schedule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime

from trueup.errors import ConfigError


class When(ABC):
    """An unchanging rule that says at which moments ticks are due."""

    __slots__ = ()

    @abstractmethod
    def next_after(self, t: datetime) -> datetime | None:
        """The first tick strictly after `t`, as an aware datetime in UTC; None when there is no other.

        The answer is the same for all moments from one tick up to the next. A `t` without a time zone is a ConfigError.
        """

    def between(self, start: datetime, end: datetime, limit: int | None = None) -> Iterator[datetime]:
        """The ticks after `start` up to and including `end`, oldest first, at most `limit` of them.

        Ticks are computed lazily, so a long span costs nothing until it is walked.
        """
        end = in_utc(end, "end")
        tick = self.next_after(start)
        found = 0
        while tick is not None and tick <= end and found != limit:
            yield tick
            found += 1
            tick = self.next_after(tick)


def in_utc(moment: datetime, name: str) -> datetime:
    """The same moment in UTC. Raises ConfigError, naming it, when it has no time zone."""
    if moment.tzinfo is UTC:
        return moment
    if moment.utcoffset() is None:
        raise ConfigError(f"{name}={moment.isoformat()} has no time zone; give an aware datetime")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ConfigError(f"{name}={moment.isoformat()} is outside the calendar when taken in UTC") from None
