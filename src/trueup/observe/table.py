"""The table of metrics that are counted from events. `docs/reference/metrics.md` lists them; a test compares."""

from __future__ import annotations

from typing import NamedTuple

from trueup.reconcile.lateness import BOUNDS_S

JOB = ("kind", "queue")
ROW = ("reconciler",)
SCAN = ("scan",)
OUTCOMES = ("changed", "unchanged", "conflict", "undone", "retry", "quarantined", "lost")

MAX_QUEUES = 100  # that have series of their own; the others are counted together
OTHER_QUEUES = "(other)"
MAX_VALUES = {"queue": MAX_QUEUES, "kind": 1_000}  # both can be chosen at run time, by a tenant's name, say
NAMES = frozenset({"kind", "queue", "reconciler", "scan"})  # labels whose values come and go with the program
STALE_AFTER = 24 * 3600.0  # seconds without an event after which a name's series are dropped
DURATIONS_S = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)
WAITS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
JOB_LATENESS_S = (0.01, 0.1, *BOUNDS_S)  # an idle worker picks a job up within milliseconds


class Metric(NamedTuple):
    """With `buckets` it is a histogram."""

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
    Metric("trueup_job_failed_duration_seconds", JOB, "How long attempts that failed took.", DURATIONS_S),
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
    Metric("trueup_reconciler_paused", ROW, "1 while it is paused, as far as this process knows."),
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
    Metric(
        "trueup_pool_wait_seconds",
        (),
        "How long callers waited for a connection of the pool; waits of less than 50 ms are not counted.",
        WAITS_S,
    ),
    Metric("trueup_pool_timeouts_total", (), "Of them, those that got none within pool_timeout."),
    Metric("trueup_notifications_ignored_total", (), "Notifications on our channel that are none of ours."),
    Metric("trueup_service_failures_total", ("service",), "Passes of a worker's loops that raised."),
)
