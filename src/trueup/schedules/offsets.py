"""A zone's time as stretches in which its clocks have one UTC offset.

Between two stretches the clocks change: forward, which leaves a gap of readings that are never shown, or back, which shows some
readings twice (a fold). Schedules get everything about a zone from this module. It only converts from UTC, which is never
ambiguous. Readings are naive datetimes, moments are aware ones in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

EARLIEST = datetime(1800, 1, 1, tzinfo=UTC)  # before any zone had a standard time
LAST_YEAR = 9998  # of the calendar: finding this year's end needs the next year

MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_PROBE = timedelta(days=3)  # the shortest stretch of the tz database lasts 167 hours (Brazil in 2000, Gaza in 2040)
_REACH = timedelta(days=2)  # no clock is further than a day from UTC, and none was ever moved by more than a day
_YEARS_KEPT = 8192  # a few years of every zone


@dataclass(frozen=True, slots=True)
class Stretch:
    """From `begin` until `end`, which it does not include, clocks show UTC plus `offset`. It ends with its UTC year at the latest."""

    begin: datetime
    end: datetime
    offset: timedelta

    def reading(self, moment: datetime) -> datetime:
        return (moment + self.offset).replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """At the moment `at` clocks are moved from `before` to `after`, both distances from UTC."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def readings(self) -> tuple[datetime, datetime]:
        """The first reading that is skipped or repeated, and the first after it that is not."""
        ends = [(self.at + offset).replace(tzinfo=None) for offset in sorted((self.before, self.after))]
        return ends[0], ends[1]


def stretches(zone: ZoneInfo, since: datetime) -> Iterator[Stretch]:
    """The stretches that end after `since`, in order, until the calendar ends. Before EARLIEST there is none."""
    since = max(since, EARLIEST)
    for year in range(since.year, LAST_YEAR + 1):
        for stretch in _stretches_of(zone, year):
            if stretch.end > since:
                yield stretch


def changes(zone: ZoneInfo, year: int) -> Iterator[OffsetChange]:
    """Every change of the zone's clocks in that year of UTC, in order."""
    begin = datetime(year, 1, 1, tzinfo=UTC)
    for earlier, later in pairwise(stretches(zone, begin - _REACH)):
        if later.begin.year > year:
            return
        if later.begin >= begin and later.offset != earlier.offset:
            yield OffsetChange(later.begin, earlier.offset, later.offset)


def reached(zone: ZoneInfo, moment: datetime) -> datetime:
    """The furthest reading that the zone's clocks have shown up to `moment`: in a fold, the one just before they went back."""
    shown = []
    for stretch in stretches(zone, moment - _REACH):
        if stretch.begin > moment:
            break
        shown.append(stretch.reading(min(moment, stretch.end - MICROSECOND)))
    return max(shown)


def first_showing(zone: ZoneInfo, reading: datetime) -> datetime | None:
    """The first moment at which the zone's clocks show `reading` or later; None when the calendar ends before.

    That is the first of two in a fold, and the end of the gap for a reading that is never shown.
    """
    as_utc = reading.replace(tzinfo=UTC)
    for stretch in stretches(zone, as_utc - _REACH):
        moment = max(stretch.begin, as_utc - stretch.offset)
        if moment < stretch.end:
            return moment
    return None


@lru_cache(maxsize=_YEARS_KEPT)
def _stretches_of(zone: ZoneInfo, year: int) -> tuple[Stretch, ...]:
    begin, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    found = []
    probe, offset = begin, _offset(zone, begin)
    while probe < end:
        following = min(probe + _PROBE, end)
        new_offset = _offset(zone, following)
        if new_offset != offset:
            change = _change_between(zone, probe, following)
            found.append(Stretch(begin, change, offset))
            begin, offset = change, new_offset
        probe = following
    if begin < end:
        found.append(Stretch(begin, end, offset))
    return tuple(found)


def _change_between(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first whole second with the offset of `after`."""
    old = _offset(zone, before)
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
