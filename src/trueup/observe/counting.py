"""Counts events: which event adds what to which metric. Prometheus and OpenTelemetry are backends.

Only the events of this process are counted. Nothing queries the database, so an export costs it nothing, and the sum over all
processes is what the fleet did. Labels are names that are written in code (kinds, queues, reconcilers, parts of a worker), never
keys, ids or texts of errors: their number is bounded by the program, not by its data. Queues and kinds can be chosen at run time,
so only the first hundred queues and thousand kinds have series of their own.

A kind, queue, reconciler or scan without an event for a day is dropped with all its series, if the backend can do that, and makes
room for another. Reconcilers that this process declares stay: an open circuit breaker must not disappear.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from trueup import events
from trueup.clock import elapsed
from trueup.events import Event, Events
from trueup.observe.fleet import FleetGauges
from trueup.observe.table import MAX_VALUES, METRICS, NAMES, OTHER_QUEUES, STALE_AFTER, Metric
from trueup.reconcile.counts import OUTCOMES

Labels = Mapping[str, str]


class Backend(Protocol):
    """Where counts go."""

    def add(self, metric: Metric, amount: float, labels: Labels) -> None: ...
    def observe(self, metric: Metric, value: float, labels: Labels) -> None: ...
    def put(self, metric: Metric, value: float, labels: Labels) -> None: ...
    def drop(self, metric: Metric, labels: Labels) -> None: ...


class Instruments:
    """Counts the events of the Apps that are attached into one backend. `fleet` has the snapshots of their watching workers."""

    def __init__(self, backend: Backend) -> None:
        self.fleet = FleetGauges()
        self._backend = backend
        self._counted: dict[Events, _Subscription] = {}
        self._values: dict[str, set[str]] = {label: set() for label in MAX_VALUES}
        self._last: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}  # when each series was counted
        self._kept: set[tuple[str, str]] = set()

    def attach(self, source: Events) -> None:
        """Attaching an App's events again has no effect: they are counted once."""
        with _lock:
            found = self._counted.get(source)
            if found is None:
                ends = [source.subscribe(partial(count, self), cls) for cls, count in COUNTED.items()]
                self._counted[source] = _Subscription(ends)
                _counting[source] = (*_counting.get(source, ()), self)
            else:
                found.holders += 1

    def detach(self, source: Events) -> None:
        with _lock:
            found = self._counted[source]
            found.holders -= 1
            if found.holders:
                return
            del self._counted[source]
            _counting[source] = tuple(each for each in _counting.get(source, ()) if each is not self)
        for end in found.ends:
            end()

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        self._backend.add(_BY_NAME[name], amount, self._touched(name, labels))

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        # Claims are timed by two clocks, and a negative length would make a sum go down.
        self._backend.observe(_BY_NAME[name], max(0.0, seconds), self._touched(name, labels))

    def put(self, name: str, value: float, **labels: str) -> None:
        self._backend.put(_BY_NAME[name], value, self._touched(name, labels))

    def keep(self, label: str, value: str) -> None:
        """Keep the series of a name that this process declares."""
        self._kept.add((label, value))

    def _touched(self, name: str, labels: dict[str, str]) -> dict[str, str]:
        for label, known in self._values.items():
            if label in labels and labels[label] not in known:
                if len(known) < MAX_VALUES[label]:
                    known.add(labels[label])
                else:
                    labels[label] = OTHER_QUEUES
        if labels:
            self._last[name, tuple(labels.items())] = elapsed()
        return labels

    def drop_stale(self) -> None:
        """Drop the series of names that had no event for a day."""
        newest: dict[tuple[str, str], float] = {}
        series = list(self._last.items())
        for (_, labels), at in series:
            for pair in labels:
                if pair[0] in NAMES:
                    newest[pair] = max(at, newest.get(pair, at))
        before = elapsed() - STALE_AFTER
        stale = {pair for pair, at in newest.items() if at < before and pair not in self._kept}
        for (name, labels), _ in series if stale else ():
            if not stale.isdisjoint(labels):
                del self._last[name, labels]
                self._backend.drop(_BY_NAME[name], dict(labels))
        for label, value in stale:
            self._values.get(label, set()).discard(value)


@dataclass(slots=True)
class _Subscription:
    ends: Sequence[Callable[[], None]]
    holders: int = 1


Count = Callable[[Instruments, Any], None]
_BY_NAME = {metric.name: metric for metric in METRICS}
_lock = threading.Lock()
_counting: WeakKeyDictionary[Events, tuple[Instruments, ...]] = WeakKeyDictionary()


def counting(source: Events) -> tuple[Instruments, ...]:
    """The instruments that count these events now."""
    return _counting.get(source, ())


def _failed(name: str) -> Count:
    def count(into: Instruments, event: events.JobRetried | events.JobBuried) -> None:
        into.add(name, kind=event.kind, queue=event.queue)
        if event.duration_ms is not None:
            seconds = event.duration_ms / 1000
            into.observe("trueup_job_failed_duration_seconds", seconds, kind=event.kind, queue=event.queue)

    return count


def _times(name: str, *fields: str) -> Count:
    """Count one for each event, labelled with these of its fields."""
    return lambda into, event: into.add(name, **{field: getattr(event, field) for field in fields})


def _enqueued(into: Instruments, event: events.JobsEnqueued) -> None:
    into.add("trueup_jobs_enqueued_total", event.count, kind=event.kind, queue=event.queue)
    if event.kept:
        into.add("trueup_jobs_kept_total", event.kept, kind=event.kind, queue=event.queue)


def _started(into: Instruments, event: events.JobStarted) -> None:
    into.observe("trueup_job_lateness_seconds", event.lateness_ms / 1000, kind=event.kind, queue=event.queue)


def _completed(into: Instruments, event: events.JobCompleted) -> None:
    into.add("trueup_jobs_completed_total", kind=event.kind, queue=event.queue)
    into.observe("trueup_job_duration_seconds", event.duration_ms / 1000, kind=event.kind, queue=event.queue)


def _ticks(into: Instruments, event: events.TicksDecided) -> None:
    into.add("trueup_ticks_fired_total", event.fired)
    into.add("trueup_ticks_skipped_total", event.skipped)


def _row(into: Instruments, event: events.RowChanged) -> None:
    into.observe("trueup_row_duration_seconds", event.duration_ms / 1000, reconciler=event.reconciler)
    into.observe("trueup_row_lateness_seconds", event.lateness_ms / 1000, reconciler=event.reconciler)


def _sweep(into: Instruments, event: events.SweepCompleted) -> None:
    # Not from the events of single rows: sweeps in pure SQL have none.
    for outcome in OUTCOMES:
        into.add("trueup_rows_total", getattr(event, outcome), reconciler=event.reconciler, outcome=outcome)
    into.add("trueup_rows_late_total", event.late, reconciler=event.reconciler)
    into.observe("trueup_sweep_duration_seconds", event.duration_ms / 1000, reconciler=event.reconciler)
    into.put("trueup_sweep_last_completed_timestamp_seconds", time.time(), reconciler=event.reconciler)


def _declared(into: Instruments, event: events.ReconcilerDeclared) -> None:
    into.keep("reconciler", event.reconciler)
    into.put("trueup_reconciler_paused", 0, reconciler=event.reconciler)  # so that it is there before the first pause


def _paused(into: Instruments, event: events.ReconcilerPaused) -> None:
    if event.key is not None:
        into.add("trueup_reconciler_key_pauses_total", reconciler=event.reconciler)
        return
    into.put("trueup_reconciler_paused", 1, reconciler=event.reconciler)


def _resumed(into: Instruments, event: events.ReconcilerResumed) -> None:
    if event.key is None:
        into.put("trueup_reconciler_paused", 0, reconciler=event.reconciler)


def _scan(into: Instruments, event: events.ScanCompleted) -> None:
    into.add("trueup_scan_items_total", event.items, scan=event.scan)
    into.observe("trueup_scan_duration_seconds", event.duration_ms / 1000, scan=event.scan)


def _downtime(into: Instruments, event: events.DowntimeFound) -> None:
    into.add("trueup_downtimes_total")
    into.add("trueup_downtime_seconds_total", event.seconds)


def _awaited(into: Instruments, event: events.ConnectionAwaited) -> None:
    into.observe("trueup_pool_wait_seconds", event.waited_ms / 1000)
    if not event.got:
        into.add("trueup_pool_timeouts_total")


COUNTED: Mapping[type[Event], Count] = MappingProxyType(
    {
        events.JobsEnqueued: _enqueued,
        events.JobStarted: _started,
        events.JobCompleted: _completed,
        events.JobRetried: _failed("trueup_jobs_retried_total"),
        events.JobSnoozed: _times("trueup_jobs_snoozed_total", "kind", "queue"),
        events.JobReleased: _times("trueup_jobs_released_total", "kind", "queue"),
        events.JobDeferred: _times("trueup_jobs_deferred_total", "kind", "queue"),
        events.JobBuried: _failed("trueup_jobs_buried_total"),
        events.JobDropped: _times("trueup_jobs_dropped_total", "kind", "queue"),
        events.JobRescued: _times("trueup_jobs_rescued_total", "kind", "state"),
        events.JobClaimLost: _times("trueup_jobs_claim_lost_total", "kind", "refused_by"),
        events.TicksDecided: _ticks,
        events.ScheduleRefused: _times("trueup_schedules_refused_total"),
        events.RowChanged: _row,
        events.SweepCompleted: _sweep,
        events.SweepRefused: _times("trueup_sweeps_refused_total", "reconciler"),
        events.SweepFailed: _times("trueup_sweeps_failed_total", "reconciler"),
        events.ReconcilerDeclared: _declared,
        events.ReconcilerPaused: _paused,
        events.ReconcilerResumed: _resumed,
        events.ScanCompleted: _scan,
        events.ScanItemFailed: _times("trueup_scan_items_failed_total", "scan"),
        events.DowntimeFound: _downtime,
        events.WorkerStarted: _times("trueup_worker_lives_total"),
        events.WorkerLeaseLost: _times("trueup_worker_leases_lost_total"),
        events.RenewalFailed: _times("trueup_worker_renewals_failed_total"),
        events.WorkerExpired: _times("trueup_workers_expired_total"),
        events.LoopBlocked: _times("trueup_loop_blocked_total"),
        events.DatabaseLost: _times("trueup_database_lost_total", "part"),
        events.ConnectionAwaited: _awaited,
        events.NotificationIgnored: _times("trueup_notifications_ignored_total"),
        events.ServiceFailed: _times("trueup_service_failures_total", "service"),
    }
)
