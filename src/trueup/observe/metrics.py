"""Events as Prometheus metrics. The only file that needs `prometheus_client`, the extra `metrics`.

Everything here is counted from the events of this process: nothing asks the database, so a scrape costs it nothing, and the
sum over all processes is what the fleet did. Labels are names that are written in code (kinds, queues, reconcilers, parts of a
worker), never keys, ids or texts of errors: their number is bounded by the program, not by its data. Queues can be chosen at run
time, so only the first hundred have series of their own.

The metrics of a registry are made once, and shared by all Apps of the process that count into it. The events of an App are
counted once, however often they are attached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from trueup import events
from trueup.errors import ConfigError
from trueup.events import Event, Events
from trueup.observe.endpoints import Endpoints, Served
from trueup.reconcile.lateness import BOUNDS_S

try:
    import prometheus_client
except ImportError:
    prometheus_client = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

JOB = ("kind", "queue")
ROW = ("reconciler",)
SCAN = ("scan",)
OUTCOMES = ("changed", "unchanged", "conflict", "undone", "retry", "quarantined", "lost")

MAX_QUEUES = 100  # that have series of their own; the others are counted together
OTHER_QUEUES = "(other)"
DURATIONS_S = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)
JOB_LATENESS_S = (0.01, 0.1, *BOUNDS_S)  # an idle worker picks a job up within milliseconds


class Metric(NamedTuple):
    """`docs/reference/metrics.md` lists them; a test compares. With `buckets` it is a histogram."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()

    @property
    def type(self) -> str:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


METRICS = (
    Metric(
        "trueup_jobs_enqueued_total",
        JOB,
        "Jobs put into a queue by this process; with a connection or session of your own as `tx=`, also if it was rolled back.",
    ),
    Metric("trueup_jobs_kept_total", JOB, "Jobs not put into a queue: one with their unique key was there."),
    Metric("trueup_jobs_completed_total", JOB, "Jobs done."),
    Metric("trueup_jobs_retried_total", JOB, "Attempts that failed and will be followed by another."),
    Metric("trueup_jobs_snoozed_total", JOB, "Jobs that asked to run later."),
    Metric("trueup_jobs_released_total", JOB, "Jobs handed back at a shutdown."),
    Metric("trueup_jobs_deferred_total", JOB, "Jobs that wait for another call of their exhausted=."),
    Metric("trueup_jobs_buried_total", JOB, "Jobs that failed for good: dead letters."),
    Metric("trueup_jobs_dropped_total", JOB, "Running jobs discarded by their handler or stopped on request."),
    Metric("trueup_jobs_rescued_total", ("kind", "state"), "Jobs taken from dead workers, by where they went."),
    Metric("trueup_jobs_claim_lost_total", ("kind", "refused_by"), "Finishes refused: the claim was lost."),
    Metric("trueup_job_duration_seconds", JOB, "How long jobs that are done took.", DURATIONS_S),
    Metric("trueup_job_lateness_seconds", JOB, "From when a job was due until it was claimed.", JOB_LATENESS_S),
    Metric("trueup_ticks_fired_total", (), "Ticks of schedules that this process fired."),
    Metric("trueup_ticks_skipped_total", (), "Ticks that it skipped, with a reason in the ledger."),
    Metric("trueup_schedules_refused_total", (), "Times that a tick or a declaration of a schedule was refused."),
    Metric("trueup_rows_total", (*ROW, "outcome"), "Rows of sweeps that have ended, by what became of them."),
    Metric("trueup_rows_late_total", ROW, "Of them, those that were more than a minute late."),
    Metric("trueup_row_duration_seconds", ROW, "How long the handlers of changed rows took.", DURATIONS_S),
    Metric("trueup_row_lateness_seconds", ROW, "From when a changed row was due or stale.", BOUNDS_S),
    Metric("trueup_sweep_duration_seconds", ROW, "How long sweeps that found something took.", DURATIONS_S),
    Metric("trueup_sweep_last_completed_timestamp_seconds", ROW, "When the last of them ended in this process."),
    Metric("trueup_sweeps_failed_total", ROW, "Sweeps that were ended by an error."),
    Metric("trueup_sweeps_refused_total", ROW, "Sweeps that did not begin: they would have touched too much."),
    Metric("trueup_reconciler_paused", ROW, "1 while it is paused, as far as this process was told."),
    Metric("trueup_reconciler_key_pauses_total", ROW, "Times that the breaker of one key (pause_by=) opened."),
    Metric("trueup_scan_items_total", SCAN, "Items of scans that came to their end."),
    Metric("trueup_scan_items_failed_total", SCAN, "Items whose handler raised."),
    Metric("trueup_scan_duration_seconds", SCAN, "How long scans that came to their end took.", DURATIONS_S),
    Metric("trueup_downtimes_total", (), "Downtimes of the whole fleet that a worker of this process ended."),
    Metric("trueup_downtime_seconds_total", (), "How long they were, together."),
    Metric("trueup_worker_lives_total", (), "Lives that workers of this process began."),
    Metric("trueup_worker_leases_lost_total", (), "Leases that they lost."),
    Metric("trueup_worker_renewals_failed_total", (), "Renewals of their leases that failed."),
    Metric("trueup_workers_expired_total", (), "Dead workers that this process cleared away."),
    Metric("trueup_loop_blocked_total", (), "Times that the event loop was found blocked."),
    Metric("trueup_database_lost_total", ("part",), "Times that a part of this process lost its connection."),
    Metric("trueup_notifications_ignored_total", (), "Notifications on our channel that are none of ours."),
    Metric("trueup_service_failures_total", ("service",), "Passes of a worker's loops that raised."),
)


class Instruments:
    """The metrics of one registry, and whose events they count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._by_name = {metric.name: _make(metric, registry) for metric in METRICS}
        self._counted: dict[Events, _Subscription] = {}
        self._queues: set[str] = set()

    def attach(self, source: Events) -> None:
        with _lock:
            found = self._counted.get(source)
            if found is None:
                ends = [source.subscribe(self._subscriber(count), cls) for cls, count in COUNTED.items()]
                self._counted[source] = _Subscription(ends)
            else:
                found.holders += 1

    def detach(self, source: Events) -> None:
        with _lock:
            found = self._counted[source]
            found.holders -= 1
            if not found.holders:
                del self._counted[source]
                for end in found.ends:
                    end()

    def _subscriber(self, count: Count) -> Callable[[Event], None]:
        return lambda event: count(self, event)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        self._one(name, labels).inc(amount)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        # Claims are timed by two clocks, and a negative length would make a sum go down.
        self._one(name, labels).observe(max(0.0, seconds))

    def put(self, name: str, value: float, **labels: str) -> None:
        self._one(name, labels).set(value)

    def put_now(self, name: str, **labels: str) -> None:
        self._one(name, labels).set_to_current_time()

    def _one(self, name: str, labels: Mapping[str, str]) -> Any:
        metric = self._by_name[name]
        if "queue" in labels:
            labels = {**labels, "queue": self._queue(labels["queue"])}
        return metric.labels(**labels) if labels else metric

    def _queue(self, queue: str) -> str:
        """A queue may be chosen per call, by a tenant's name, say. Series are never dropped, so their number is bounded."""
        if queue in self._queues:
            return queue
        if len(self._queues) >= MAX_QUEUES:
            return OTHER_QUEUES
        self._queues.add(queue)
        return queue


@dataclass(slots=True)
class _Subscription:
    ends: Sequence[Callable[[], None]]
    holders: int = 1


Count = Callable[[Instruments, Any], None]

_lock = threading.Lock()
_instruments: WeakKeyDictionary[CollectorRegistry, Instruments] = WeakKeyDictionary()


def _make(metric: Metric, registry: CollectorRegistry) -> Any:
    match metric.type:
        case "histogram":
            return prometheus_client.Histogram(
                metric.name, metric.meaning, metric.labels, registry=registry, buckets=metric.buckets
            )
        case "counter":
            return prometheus_client.Counter(metric.name, metric.meaning, metric.labels, registry=registry)
        case _:
            return prometheus_client.Gauge(metric.name, metric.meaning, metric.labels, registry=registry)


class Metrics:
    """Counts the events of an App into a registry until `detach`; what was counted stays."""

    def __init__(self, events: Events, registry: CollectorRegistry | None = None) -> None:
        """Without a `registry`, into the one that `prometheus_client` exports by default."""
        _need_prometheus_client("metrics")
        self.registry: CollectorRegistry = prometheus_client.REGISTRY if registry is None else registry
        with _lock:
            found = _instruments.get(self.registry)
            if found is None:
                found = _instruments[self.registry] = Instruments(self.registry)
        self._attached: Instruments | None = found
        self._events = events
        found.attach(events)

    def scrape(self) -> tuple[str, bytes]:
        """What Prometheus reads, and its content type."""
        return prometheus_client.CONTENT_TYPE_LATEST, prometheus_client.generate_latest(self.registry)

    def detach(self) -> None:
        """May be called twice."""
        attached, self._attached = self._attached, None
        if attached is not None:
            attached.detach(self._events)


def attach_metrics(events: Events, registry: CollectorRegistry | None = None) -> Metrics:
    """Count the events from here on; see Metrics. Raises ConfigError when the extra is not installed."""
    return Metrics(events, registry)


class MetricsServer:
    """Counts events and serves what was counted at `/metrics`, from threads of its own, until `close`.

    Workers of one process that are told the same address share what listens there: they count into one registry.
    """

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self._metrics = metrics
        try:
            self._endpoints = Endpoints(host, port, Served(scrape=metrics.scrape), "metrics")
        except ConfigError:
            metrics.detach()
            raise

    def close(self) -> None:
        """Returns when nothing is served any more, unless for others; takes up to half a second. May be called twice."""
        self._endpoints.close()
        self._metrics.detach()


def serve_metrics(events: Events, host: str, port: int) -> MetricsServer:
    """Count the events and serve them. Raises ConfigError when the extra is missing, or the address cannot be had."""
    _need_prometheus_client(f"metrics_port={port}")
    return MetricsServer(Metrics(events), host, port)


def counted(events: Events) -> Metrics | None:
    """Metrics of the events, or None where the extra is not installed."""
    return None if prometheus_client is None else Metrics(events)


def _need_prometheus_client(wanted: str) -> None:
    if prometheus_client is None:
        raise ConfigError(f"{wanted}: prometheus-client is not installed; install trueup[metrics]")


def _jobs(name: str) -> Count:
    return lambda into, event: into.add(name, kind=event.kind, queue=event.queue)


def _times(name: str) -> Count:
    return lambda into, event: into.add(name)


def _enqueued(into: Instruments, event: events.JobsEnqueued) -> None:
    into.add("trueup_jobs_enqueued_total", event.count, kind=event.kind, queue=event.queue)
    if event.kept:
        into.add("trueup_jobs_kept_total", event.kept, kind=event.kind, queue=event.queue)


def _started(into: Instruments, event: events.JobStarted) -> None:
    into.observe("trueup_job_lateness_seconds", event.lateness_ms / 1000, kind=event.kind, queue=event.queue)


def _completed(into: Instruments, event: events.JobCompleted) -> None:
    into.add("trueup_jobs_completed_total", kind=event.kind, queue=event.queue)
    into.observe("trueup_job_duration_seconds", event.duration_ms / 1000, kind=event.kind, queue=event.queue)


def _rescued(into: Instruments, event: events.JobRescued) -> None:
    into.add("trueup_jobs_rescued_total", kind=event.kind, state=event.state)


def _claim_lost(into: Instruments, event: events.JobClaimLost) -> None:
    into.add("trueup_jobs_claim_lost_total", kind=event.kind, refused_by=event.refused_by)


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
    into.put_now("trueup_sweep_last_completed_timestamp_seconds", reconciler=event.reconciler)


def _sweep_refused(into: Instruments, event: events.SweepRefused) -> None:
    into.add("trueup_sweeps_refused_total", reconciler=event.reconciler)


def _sweep_failed(into: Instruments, event: events.SweepFailed) -> None:
    into.add("trueup_sweeps_failed_total", reconciler=event.reconciler)


def _declared(into: Instruments, event: events.ReconcilerDeclared) -> None:
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


def _scan_item_failed(into: Instruments, event: events.ScanItemFailed) -> None:
    into.add("trueup_scan_items_failed_total", scan=event.scan)


def _downtime(into: Instruments, event: events.DowntimeFound) -> None:
    into.add("trueup_downtimes_total")
    into.add("trueup_downtime_seconds_total", event.seconds)


def _database_lost(into: Instruments, event: events.DatabaseLost) -> None:
    into.add("trueup_database_lost_total", part=event.part)


def _service_failed(into: Instruments, event: events.ServiceFailed) -> None:
    into.add("trueup_service_failures_total", service=event.service)


COUNTED: Mapping[type[Event], Count] = MappingProxyType(
    {
        events.JobsEnqueued: _enqueued,
        events.JobStarted: _started,
        events.JobCompleted: _completed,
        events.JobRetried: _jobs("trueup_jobs_retried_total"),
        events.JobSnoozed: _jobs("trueup_jobs_snoozed_total"),
        events.JobReleased: _jobs("trueup_jobs_released_total"),
        events.JobDeferred: _jobs("trueup_jobs_deferred_total"),
        events.JobBuried: _jobs("trueup_jobs_buried_total"),
        events.JobDropped: _jobs("trueup_jobs_dropped_total"),
        events.JobRescued: _rescued,
        events.JobClaimLost: _claim_lost,
        events.TicksDecided: _ticks,
        events.ScheduleRefused: _times("trueup_schedules_refused_total"),
        events.RowChanged: _row,
        events.SweepCompleted: _sweep,
        events.SweepRefused: _sweep_refused,
        events.SweepFailed: _sweep_failed,
        events.ReconcilerDeclared: _declared,
        events.ReconcilerPaused: _paused,
        events.ReconcilerResumed: _resumed,
        events.ScanCompleted: _scan,
        events.ScanItemFailed: _scan_item_failed,
        events.DowntimeFound: _downtime,
        events.WorkerStarted: _times("trueup_worker_lives_total"),
        events.WorkerLeaseLost: _times("trueup_worker_leases_lost_total"),
        events.RenewalFailed: _times("trueup_worker_renewals_failed_total"),
        events.WorkerExpired: _times("trueup_workers_expired_total"),
        events.LoopBlocked: _times("trueup_loop_blocked_total"),
        events.DatabaseLost: _database_lost,
        events.NotificationIgnored: _times("trueup_notifications_ignored_total"),
        events.ServiceFailed: _service_failed,
    }
)
