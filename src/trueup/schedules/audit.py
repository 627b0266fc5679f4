"""Compares the expected ticks with the ledger of those that were decided. Pure.

The version of a schedule at a given time says which ticks are expected: each version counts from when it was made up to and
including when the next was made. While it is paused, retired or deleted, no tick is expected.

A row of the ledger accounts for its tick, or for all ticks from its first to its last when it stands for several. Whether a
tick was fired by the planner, by a backfill, or skipped for a reason makes no difference: it is accounted for. Ticks that
people triggered, or backfilled at times that no version expected, are neither missing nor unexpected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from trueup.schedules.when import When

PATIENCE = timedelta(seconds=60)  # how long a planner may take before a tick without a verdict counts as overdue
BY_PEOPLE = ("triggered", "backfill")  # reasons of ticks that no version needs to expect


@dataclass(frozen=True, slots=True)
class Reign:
    """The version in effect after `since`, up to and including `until`; without a `when` no tick is expected."""

    since: datetime
    until: datetime
    when: When | None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A row of the ledger. Field order is that of `schedules/ledger.sql`."""

    due_at: datetime
    last_due_at: datetime
    count: int
    outcome: str
    reason: str | None
    job_id: int | None

    @property
    def by_people(self) -> bool:
        return self.reason in BY_PEOPLE


@dataclass(slots=True)
class TickSpan:
    """A number of consecutive expected ticks."""

    first: datetime
    last: datetime
    count: int = 1


@dataclass(frozen=True, slots=True)
class Astray:
    """A run that the ledger does not account for: the tick has another job, or does not exist."""

    due_at: datetime
    job_id: int
    recorded: int | None


@dataclass(slots=True)
class Findings:
    """The findings about one schedule. `gaps` are ticks that were passed over, `overdue` ones without a verdict yet, `unexpected`
    ones that no version expects, `astray` runs without a tick of their own."""

    name: str
    expected: int = 0
    fired: int = 0
    skipped: int = 0
    gaps: list[TickSpan] = field(default_factory=list)
    overdue: list[TickSpan] = field(default_factory=list)
    unexpected: list[datetime] = field(default_factory=list)
    astray: list[Astray] = field(default_factory=list)
    unreadable: str | None = None  # why it could not be judged
    missing: str | None = None  # why it does not fire, although code declares it
    _open: TickSpan | None = field(default=None, repr=False)

    @property
    def clean(self) -> bool:
        return not (self.gaps or self.overdue or self.unexpected or self.astray or self.unreadable or self.missing)

    def compare(
        self, ticks: Sequence[datetime], rows: Sequence[LedgerRow], after: datetime, watermark: datetime, now: datetime
    ) -> None:
        """Judge the expected ticks after `after` by the ledger's rows of the same interval. Call it once for each interval, in
        order.
        """
        self._count(ticks, [row for row in rows if row.due_at > after])
        for tick, decided in _looked_up(ticks, rows):
            if decided:
                self._open = None
            elif tick <= watermark:
                self._add(self.gaps, tick)
            elif now - tick > PATIENCE:
                self._add(self.overdue, tick)

    def _count(self, ticks: Sequence[datetime], rows: Iterable[LedgerRow]) -> None:
        wanted = set(ticks)
        self.expected += len(wanted)
        for row in rows:
            fired = row.outcome == "fired"
            self.fired += fired
            self.skipped += row.count - fired
            if row.due_at not in wanted and not row.by_people:
                self.unexpected.append(row.due_at)

    def _add(self, spans: list[TickSpan], tick: datetime) -> None:
        if self._open is not None and spans and spans[-1] is self._open:
            self._open.last = tick
            self._open.count += 1
        else:
            self._open = TickSpan(tick, tick)
            spans.append(self._open)


def reigns(versions: Sequence[tuple[datetime, When | None]], end: datetime) -> list[Reign]:
    """Versions, each with the time it was made, as the intervals in which they are in effect."""
    bounds = pairwise([*(since for since, _ in versions), end])
    return [Reign(since, until, when) for (since, until), (_, when) in zip(bounds, versions, strict=True)]


def expected(reigns: Iterable[Reign], start: datetime, end: datetime) -> Iterator[datetime]:
    """The ticks after `start` up to and including `end`, oldest first; computed lazily."""
    for reign in reigns:
        since, until = max(reign.since, start), min(reign.until, end)
        if reign.when is not None and since < until:
            yield from reign.when.between(since, until)


def _looked_up(ticks: Iterable[datetime], rows: Iterable[LedgerRow]) -> Iterator[tuple[datetime, bool]]:
    """Each tick, and whether some row accounts for it. Both are in order."""
    ahead = iter(rows)
    row = next(ahead, None)
    reach: datetime | None = None  # how far the rows that began up to now extend
    for tick in ticks:
        while row is not None and row.due_at <= tick:
            reach = row.last_due_at if reach is None else max(reach, row.last_due_at)
            row = next(ahead, None)
        yield tick, reach is not None and tick <= reach
