"""Gauges of what waits in the database. One worker of the fleet reads it every few seconds and exports it; the others export
nothing.

A snapshot replaces the previous one as a whole, so a series whose queue, kind or check is gone disappears with the next one, and
a scrape never sees half of it. Nothing here queries the database: `operate.watch` does, and only in the worker that watches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trueup.observe.table import JOB, MAX_QUEUES, OTHER_QUEUES, Metric

CHECK = ("check",)
GAUGES = (
    Metric("trueup_jobs_queued", JOB, "Jobs in the queue, due or not."),
    Metric("trueup_jobs_due", JOB, "Queued jobs that could run now: the backlog, without paused queues and kinds."),
    Metric("trueup_jobs_running", JOB, "Jobs that are running."),
    Metric("trueup_jobs_oldest_due_age_seconds", JOB, "How long the oldest due job has waited; 0 if none is due."),
    Metric("trueup_check_ok", CHECK, "1 while the check of `trueup status --check` passes, else 0."),
    Metric("trueup_check_value", CHECK, "The measured value: seconds (workers, ticks, kinds, overdue_…) or a count."),
)
AGES = ("trueup_jobs_oldest_due_age_seconds",)

Series = dict[tuple[str, ...], float]
Snapshot = Mapping[str, Series]


def snapshot(queues: Sequence[Mapping[str, Any]], checks: Sequence[tuple[str, bool, float]]) -> Snapshot:
    """From `views.queues()` and the checks. Queues beyond the first hundred are added up as one."""
    named = set(sorted({str(each["queue"]) for each in queues})[:MAX_QUEUES])
    shown: dict[str, Series] = {metric.name: {} for metric in GAUGES}
    for each in queues:
        labels = (str(each["kind"]), each["queue"] if each["queue"] in named else OTHER_QUEUES)
        for name, value in (
            ("trueup_jobs_queued", each["queued"]),
            ("trueup_jobs_due", 0 if each["paused"] else each["due"]),
            ("trueup_jobs_running", each["running"]),
            ("trueup_jobs_oldest_due_age_seconds", 0.0 if each["paused"] else each["oldest_due_s"] or 0.0),
        ):
            before = shown[name].get(labels, 0.0)
            shown[name][labels] = max(before, float(value)) if name in AGES else before + float(value)
    for check, ok, value in checks:
        shown["trueup_check_ok"][check,] = float(ok)
        shown["trueup_check_value"][check,] = value
    return shown


class FleetGauges:
    """The gauges of one backend, with a snapshot per App that watches."""

    def __init__(self) -> None:
        self._shown: dict[object, Snapshot] = {}

    def show(self, source: object, shown: Snapshot) -> None:
        self._shown = {**self._shown, source: shown}

    def hide(self, source: object) -> None:
        self._shown = {each: shown for each, shown in self._shown.items() if each is not source}

    def gauges(self) -> Sequence[Metric]:
        """The gauges that have a value: none in a process that does not watch."""
        return GAUGES if self._shown else ()

    def series(self, name: str) -> Series:
        """All series of one gauge."""
        together: Series = {}
        for shown in list(self._shown.values()):
            together |= shown[name]
        return together
