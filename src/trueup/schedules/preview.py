"""The effect of clock changes on a cron schedule in a year: each time that they skip or repeat, when it is due, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal

from trueup.errors import ConfigError
from trueup.schedules.cron import Cron
from trueup.schedules.offsets import EARLIEST, LAST_YEAR, OffsetChange, changes
from trueup.schedules.spec import Spec

FIRST = 5  # ticks of a year that are shown
MAX_TOUCHED = 1_000  # times of a year that the zone's clocks skip or repeat
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Touched:
    """A matching time on the zone's clocks that they skip (a gap) or show twice (a fold).

    `ticks` are the times at which it is still due: none, one or two. Times in one gap share one tick.
    """

    reading: datetime
    clocks: Literal["gap", "fold"]
    changed_at: datetime
    ticks: tuple[datetime, ...]
    why: str


def preview(cron: Cron, year: int) -> Iterator[Touched]:
    """The times that the zone's clock changes affect in that year of UTC, in order.

    Computed lazily: a schedule for every second has 3,600 of them at each change of an hour.
    Raises ConfigError for a year without a calendar.
    """
    _check_calendar(year)
    return (touched for change in changes(cron.zone, year) for touched in _touched_by(cron, change))


def _touched_by(cron: Cron, change: OffsetChange) -> Iterator[Touched]:
    first, end = change.readings
    reading = cron.expression.first(first)
    while reading is not None and reading < end:
        clocks: Literal["gap", "fold"] = "gap" if change.is_gap else "fold"
        yield Touched(reading, clocks, change.at, _ticks(cron, change, reading), _why(cron, change))
        reading = cron.expression.first(reading + _SECOND)


def _ticks(cron: Cron, change: OffsetChange, reading: datetime) -> tuple[datetime, ...]:
    if change.is_gap:
        return (change.at,) if cron.fixed else ()
    first, second = (reading.replace(tzinfo=UTC) - offset for offset in (change.before, change.after))
    return (first,) if cron.fixed else (first, second)


def _why(cron: Cron, change: OffsetChange) -> str:
    if cron.fixed:
        return (
            "clocks skip it: due once, right after the gap"
            if change.is_gap
            else "clocks show it twice: due the first time"
        )
    rule = "literal" if cron.dst == "literal" else "a star in the minute or hour follows real time"
    return f"clocks skip it: not due ({rule})" if change.is_gap else f"clocks show it twice: due both times ({rule})"


@dataclass(frozen=True, slots=True)
class Year:
    """A schedule in a year of UTC: its first ticks, and the effect of clock changes. `more` when it is not complete."""

    spec: Spec
    year: int
    first: tuple[datetime, ...]
    touched: tuple[Touched, ...]
    more: bool


def in_year(spec: Spec, year: int) -> Year:
    """The first ticks of any schedule in that year, and a bounded number of times that the zone's clocks skip or repeat.

    Only cron schedules look at clocks. Raises ConfigError for a year without a calendar.
    """
    _check_calendar(year)
    begin, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    ticks = tuple(spec.between(begin - timedelta.resolution, end - timedelta.resolution, FIRST))
    touched = tuple(islice(preview(spec, year), MAX_TOUCHED + 1)) if isinstance(spec, Cron) else ()
    return Year(spec, year, ticks, touched[:MAX_TOUCHED], len(touched) > MAX_TOUCHED)


def _check_calendar(year: int) -> None:
    if not EARLIEST.year < year < LAST_YEAR:
        raise ConfigError(f"year={year} is not from {EARLIEST.year + 1} to {LAST_YEAR - 1}")
