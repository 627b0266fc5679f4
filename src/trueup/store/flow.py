"""Throughput over time: jobs enqueued and ended, and the outcomes of sweeps, by time span; and arguments for a list of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trueup.jobs.records import JobSummary
from trueup.store.db.repository import Repository

MAX_ARGUMENTS = 1_000  # bytes, as they are stored


@dataclass(slots=True)
class JobSpan:
    """Jobs in one span of time. `waited_s` is from when one was due until it was started."""

    begins_at: datetime
    enqueued: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    worst_waited_s: float = 0.0

    @property
    def ended(self) -> int:
        return self.done + self.dead + self.cancelled


@dataclass(slots=True)
class SweptSpan:
    begins_at: datetime
    changed: int = 0
    unchanged: int = 0
    retry: int = 0
    quarantined: int = 0
    other: int = 0
    worst_lateness_s: float = 0.0

    @property
    def total(self) -> int:
        return self.changed + self.unchanged + self.retry + self.quarantined + self.other


class Flow(Repository):
    async def jobs(self, now: datetime, within: timedelta, step: timedelta) -> list[JobSpan]:
        """Every span of the time until now, oldest first, empty ones included. The last one has only begun."""
        begins = _begins(now, within, step)
        spans = {at: JobSpan(at) for at in begins}
        params = {"since": begins[0], "step": step.total_seconds()}
        found = await self._fetch("views/jobs_by_time", **params)
        for ended_in, enqueued_in, number, done, dead, cancelled, waited_s in found:
            if ended_in is not None and (span := spans.get(ended_in.astimezone(UTC))) is not None:
                span.done, span.dead, span.cancelled = span.done + done, span.dead + dead, span.cancelled + cancelled
                span.worst_waited_s = max(span.worst_waited_s, waited_s)
            if enqueued_in is not None and (span := spans.get(enqueued_in.astimezone(UTC))) is not None:
                span.enqueued += number
        return list(spans.values())

    async def arguments(self, jobs: Iterable[JobSummary]) -> dict[int, dict[str, Any]]:
        """The arguments of these jobs by id, except long ones, which a list does not show."""
        listed = tuple(jobs)
        since = min((job.finished_at for job in listed if job.finished_at is not None), default=None)
        params = {"ids": [job.id for job in listed], "since": since, "most": MAX_ARGUMENTS}
        return dict(await self._fetch("views/arguments", **params)) if listed else {}

    async def sweeps(
        self, now: datetime, within: timedelta, step: timedelta, name: str | None = None
    ) -> dict[str, list[SweptSpan]]:
        """By reconciler, every span of the time until now, oldest first."""
        begins = _begins(now, within, step)
        found: dict[str, dict[datetime, SweptSpan]] = {}
        for reconciler, at, *counts in await self._fetch(
            "views/swept_by_time", since=begins[0], step=step.total_seconds(), name=name
        ):
            spans = found.setdefault(reconciler, {begin: SweptSpan(begin) for begin in begins})
            if at in spans:  # not after now: the clock was ahead then
                spans[at.astimezone(UTC)] = SweptSpan(at.astimezone(UTC), *counts)
        return {reconciler: [spans[at] for at in sorted(spans)] for reconciler, spans in found.items()}


def _begins(now: datetime, within: timedelta, step: timedelta) -> list[datetime]:
    seconds = step.total_seconds()
    last = datetime.fromtimestamp(now.timestamp() // seconds * seconds, UTC)
    return [last - step * back for back in range(int(within / step) - 1, -1, -1)]
