"""What happened since a given time, counted in the database: downtimes, verdicts on ticks, sweeps, and waiting work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trueup.reconcile.counts import Counts
from trueup.reconcile.lateness import BOUNDS_S, GRACE, Lateness
from trueup.store.db.own_connection import Record
from trueup.store.db.repository import Repository
from trueup.store.workers import GRACE as ALIVE_WITHIN
from trueup.store.workers import Downtime

LATELY = timedelta(minutes=5)  # before a reconciler's last sweep: long enough to be steady, short enough to be of today


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Decisions about ticks of one schedule with the same outcome and reason; one decision may stand for several `ticks`."""

    schedule: str
    outcome: str
    reason: str | None
    decisions: int
    ticks: int
    late: int
    worst_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Runs that have not ended, and how many of them are late: their tick was, or no worker has started them in time."""

    runs: int
    late: int


@dataclass(frozen=True, slots=True)
class Swept:
    """The outcomes of the sweeps of one reconciler, and its rate while it was sweeping."""

    counts: Counts
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class OverdueJobs:
    """Overdue jobs that no worker has claimed. Runs of schedules are not among them."""

    queue: str
    kind: str
    count: int
    oldest_s: float


class RecoveryViews(Repository):
    async def downtimes(self, since: datetime, until: datetime) -> list[Downtime]:
        return [Downtime(*row) for row in await self._fetch("recovery/downtimes", since=since, until=until)]

    async def ever_alive(self) -> bool:
        """Whether any worker has ever been alive."""
        return bool((await self._fetch("recovery/ever_alive"))[0][0])

    async def down_since(self) -> datetime | None:
        """The last heartbeat when no worker is alive; None when one is, or was a moment ago, or when there never was any."""
        rows = await self._fetch("recovery/down_since", grace=ALIVE_WITHIN.total_seconds())
        return rows[0][0] if rows else None

    async def verdicts(self, since: datetime, until: datetime, graces: Mapping[str, timedelta]) -> list[Verdicts]:
        """`graces` are those of schedules that have one of their own."""
        return [
            Verdicts(*row) for row in await self._fetch("recovery/ticks", since=since, until=until, **_graces(graces))
        ]

    async def unfinished(self, graces: Mapping[str, timedelta]) -> dict[str, Unfinished]:
        rows = await self._fetch("recovery/unfinished", **_graces(graces))
        return {schedule: Unfinished(runs, late) for schedule, runs, late in rows}

    async def swept(self, since: datetime, until: datetime) -> dict[str, Swept]:
        rows = await self._fetch("recovery/sweeps", since=since, until=until, lately=LATELY.total_seconds())
        return {row[0]: _swept(row[1:]) for row in rows}

    async def known(self) -> list[Record]:
        """Reconcilers as they are now, and how many records of rows each has, as fields of ReconcilerRecovery."""
        return await self._records("recovery/reconcilers")

    async def waiting(self) -> list[OverdueJobs]:
        return [OverdueJobs(*row) for row in await self._fetch("recovery/waiting", grace=GRACE.total_seconds())]


def _graces(graces: Mapping[str, timedelta]) -> dict[str, Any]:
    return {
        "names": list(graces),
        "graces": [grace.total_seconds() for grace in graces.values()],
        "grace": GRACE.total_seconds(),
    }


def _swept(row: Sequence[Any]) -> Swept:
    claimed, changed, unchanged, conflict, undone, retry, quarantined, lost = row[:8]
    late, worst_s, total_s, histogram, busy_rows, busy_s = row[8:]
    # Padded, cut: a sweep of another release may have been counted between other bounds.
    places = len(BOUNDS_S) + 1
    lateness = Lateness([*(histogram or ()), *([0] * places)][:places], late, worst_s, total_s)
    counts = Counts(claimed, changed, unchanged, conflict, undone, retry, quarantined, lost, lateness)
    return Swept(counts, busy_rows / busy_s if busy_s else None)
