"""The table of metrics that are counted from events. `docs/reference/metrics.md` lists them; a test compares."""

from __future__ import annotations

from typing import NamedTuple

from trueup.reconcile.lateness import BOUNDS_S

JOB = ("kind", "queue")
ROW = ("reconciler",)
SCAN = ("scan",)

MAX_QUEUES = 100  # queues that have series of their own; the others are counted together
OTHER_QUEUES = "(other)"
MAX_VALUES = {"queue": MAX_QUEUES, "kind": 1_000}  # both can be chosen at run time, by a tenant's name, say
NAMES = frozenset({"kind", "queue", "reconciler", "scan"})  # labels whose values come and go with the program
STALE_AFTER = 24 * 3600.0  # seconds without an event after which a name's series are dropped
DURATIONS_S = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0)
WAITS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
JOB_LATENESS_S = (0.01, 0.1, *BOUNDS_S)  # an idle worker starts a job within milliseconds


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
        "Jobs that this process enqueued; with your own `tx=`, also if it was rolled back.",
    ),
    Metric("trueup_jobs_kept_total", JOB, "Jobs that were not enqueued, because a live job had their unique key."),
    Metric("trueup_jobs_completed_total", JOB, "Jobs done."),
    Metric("trueup_jobs_retried_total", JOB, "Failed attempts that will be retried."),
    Metric("trueup_jobs_snoozed_total", JOB, "Jobs that were snoozed."),
    Metric("trueup_jobs_released_total", JOB, "Jobs handed back at shutdown."),
    Metric("trueup_jobs_deferred_total", JOB, "Jobs queued for another call of their exhausted=."),
    Metric("trueup_jobs_buried_total", JOB, "Jobs that became dead letters."),
    Metric("trueup_jobs_dropped_total", JOB, "Running jobs that their handler discarded or that were cancelled."),
    Metric("trueup_jobs_rescued_total", ("kind", "state"), "Jobs taken over from dead workers, by their new state."),
    Metric("trueup_jobs_claim_lost_total", ("kind", "refused_by"), "Outcomes refused because the claim was lost."),
    Metric("trueup_job_duration_seconds", JOB, "Duration of jobs that are done.", DURATIONS_S),
    Metric("trueup_job_failed_duration_seconds", JOB, "Duration of failed attempts.", DURATIONS_S),
    Metric("trueup_job_lateness_seconds", JOB, "Time from when a job was due until it was claimed.", JOB_LATENESS_S),
    Metric("trueup_ticks_fired_total", (), "Ticks of schedules that this process fired."),
    Metric("trueup_ticks_skipped_total", (), "Ticks that this process skipped, with a reason in the ledger."),
    Metric("trueup_schedules_refused_total", (), "Refused ticks and refused declarations of schedules."),
    Metric("trueup_rows_total", (*ROW, "outcome"), "Rows of completed sweeps, by outcome."),
    Metric("trueup_rows_late_total", ROW, "Rows that were more than a minute late."),
    Metric("trueup_row_duration_seconds", ROW, "Duration of the handlers of changed rows.", DURATIONS_S),
    Metric("trueup_row_lateness_seconds", ROW, "Time since a changed row was due or stale.", BOUNDS_S),
    Metric("trueup_sweep_duration_seconds", ROW, "Duration of sweeps that found rows.", DURATIONS_S),
    Metric(
        "trueup_sweep_last_completed_timestamp_seconds",
        ROW,
        "When the last sweep that found rows ended in this process.",
    ),
    Metric("trueup_sweeps_failed_total", ROW, "Sweeps that ended with an error."),
    Metric("trueup_sweeps_refused_total", ROW, "Sweeps refused because they would have changed too many rows."),
    Metric(
        "trueup_reconciler_paused",
        ROW,
        "1 while the reconciler is paused or its circuit breaker is open, as far as this process knows.",
    ),
    Metric("trueup_reconciler_key_pauses_total", ROW, "How often the circuit breaker of one key (pause_by=) opened."),
    Metric("trueup_scan_items_total", SCAN, "Items of completed scans."),
    Metric("trueup_scan_items_failed_total", SCAN, "Items whose handler raised."),
    Metric("trueup_scan_duration_seconds", SCAN, "Duration of completed scans.", DURATIONS_S),
    Metric(
        "trueup_downtimes_total", (), "Downtimes of the whole fleet that ended when a worker of this process started."
    ),
    Metric("trueup_downtime_seconds_total", (), "Total length of these downtimes."),
    Metric("trueup_worker_lives_total", (), "Registrations of this process's workers."),
    Metric("trueup_worker_leases_lost_total", (), "Worker leases lost in this process."),
    Metric("trueup_worker_renewals_failed_total", (), "Failed renewals of worker leases."),
    Metric("trueup_workers_expired_total", (), "Dead workers whose jobs this process took over."),
    Metric("trueup_loop_blocked_total", (), "How often the event loop was blocked."),
    Metric("trueup_database_lost_total", ("part",), "How often a part of this process lost its connection."),
    Metric(
        "trueup_pool_wait_seconds",
        (),
        "How long callers waited for a connection of the pool; waits of less than 50 ms are not counted.",
        WAITS_S,
    ),
    Metric("trueup_pool_timeouts_total", (), "Callers that got no connection within pool_timeout."),
    Metric("trueup_notifications_ignored_total", (), "Notifications on trueup's channel that are not from trueup."),
    Metric("trueup_service_failures_total", ("service",), "Passes of a worker's loops that raised an error."),
)
