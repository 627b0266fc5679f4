"""Cron schedules in a time zone.

Clock changes follow the rule of Debian's cron (`dst="debian"`):

- A schedule at fixed times is due when its zone's clocks first show that time, or first jump over it. A skipped time
  is due once, right after the gap (several in one gap are one tick), and a time that is shown twice is due the first time.
- A schedule with a star in the minute or the hour follows real time: it is due whenever the clocks show a matching time,
  so not in a gap, and twice in a fold.

With `dst="literal"` all schedules follow the second rule. Debian's cron takes a change of more than three hours for a
correction of the clock; the changes of a tz database are never that, so here there is no such limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from trueup.errors import ConfigError
from trueup.schedules.expression import Expression
from trueup.schedules.offsets import EARLIEST, LAST_YEAR, MICROSECOND, first_showing, reached, stretches
from trueup.schedules.when import When, in_utc
from trueup.schedules.zones import zone

Dst: TypeAlias = Literal["debian", "literal"]

GIVEN_UP_AFTER = timedelta(days=36525)  # a hundred years without a tick: a time that is always in a gap
# Fixed, so that the day of the declaration does not decide what is accepted.
_TRIED_FROM = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cron(When):
    """Ticks at the times a cron expression matches on the clocks of a zone. Equal when written the same way.

    There are ticks from 1800 to 9998; earlier times count as its beginning.
    Raises ConfigError for an expression that is wrong (naming the field), that never comes, or for an unknown zone.
    """

    expr: str
    tz: str = "UTC"
    dst: Dst = "debian"
    _expression: Expression = field(init=False, repr=False, compare=False)
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dst not in get_args(Dst):
            raise ConfigError(f'dst={self.dst!r}: it is "debian" or "literal"')
        expression = Expression.parse(self.expr)
        object.__setattr__(self, "expr", expression.text)
        object.__setattr__(self, "_expression", expression)
        object.__setattr__(self, "_zone", zone(self.tz))
        if self.next_after(_TRIED_FROM) is None:
            raise ConfigError(
                f"cron expression {self.expr!r} never matches in {self.tz}: the clocks always skip its time"
            )

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str, Dst]]:
        # A zone that was read from a file cannot be pickled.
        return Cron, (self.expr, self.tz, self.dst)

    @property
    def fixed(self) -> bool:
        """Whether skipped and repeated times have exactly one tick: neither wildcard nor literal."""
        return self.dst == "debian" and not self._expression.wildcard

    @property
    def expression(self) -> Expression:
        return self._expression

    @property
    def zone(self) -> ZoneInfo:
        return self._zone

    def next_after(self, t: datetime) -> datetime | None:
        t = max(in_utc(t, "t"), EARLIEST)
        if t.year > LAST_YEAR:
            return None
        return self._next_fixed(t) if self.fixed else self._next_shown(t)

    def describe(self) -> str:
        """The expression in English, for people."""
        return self._expression.describe()

    def _next_fixed(self, t: datetime) -> datetime | None:
        # All readings up to the furthest one have had their tick, also those that the clocks show a second time.
        reading = self._expression.first(reached(self._zone, t) + MICROSECOND)
        return reading and first_showing(self._zone, reading)

    def _next_shown(self, t: datetime) -> datetime | None:
        searched_from: datetime | None = None
        match: datetime | None = None
        for stretch in stretches(self._zone, t):
            begin = max(stretch.begin, t + MICROSECOND)
            if begin - t > GIVEN_UP_AFTER:
                return None
            reading = stretch.reading(begin)
            # A match that is still ahead stays valid, unless clocks went back to before the start of the search.
            if searched_from is None or match is None or not searched_from <= reading <= match:
                searched_from, match = reading, self._expression.first(reading)
            if match is None:
                return None
            due = match.replace(tzinfo=UTC) - stretch.offset
            if due < stretch.end:
                return due
        return None
