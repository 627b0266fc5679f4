"""Keep your tables true: durable jobs, schedules, leases and reconcilers on the PostgreSQL you already have.

The names below are the public ones. Each is imported when it is first used, so that small parts (the embedded server's
keeper, `trueup --help`) do not pay for all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trueup.building import imported

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.backoff import Retry
    from trueup.durations import Rate
    from trueup.errors import (
        ConfigError,
        DatabaseUnavailable,
        DuplicateJob,
        EmbeddedUnavailable,
        InvalidArguments,
        JobCancelled,
        JobFailed,
        LostClaim,
        LostLease,
        NotAcquired,
        NotFound,
        RateExceeded,
        ResultMismatch,
        ResultTimeout,
        SchemaMismatch,
        TrueupError,
        UnknownKind,
    )
    from trueup.jobs.context import Context, injected
    from trueup.jobs.definition import Job
    from trueup.jobs.exhausted import Exhausted
    from trueup.jobs.handle import Enqueued, Handle
    from trueup.jobs.job import Draft, HandlerCall
    from trueup.jobs.limits import Limit
    from trueup.jobs.middleware import EnqueueCall
    from trueup.jobs.outcome import Discard, GiveUp, JobTimeout, Snooze
    from trueup.jobs.records import (
        JobCount,
        JobDetails,
        JobError,
        JobPage,
        JobProgress,
        JobSummary,
        Pause,
        QueueDepth,
        WorkerInfo,
    )
    from trueup.jobs.tick import Tick
    from trueup.operate.checks import Finding
    from trueup.reconcile.declare import Table
    from trueup.reconcile.failed import Failed
    from trueup.reconcile.outcome import Again, Delete, Now, Stay, To, Unchanged
    from trueup.reconcile.row import Row
    from trueup.store.actions import ActionRecord
    from trueup.work.leases.hold import Lease
    from trueup.work.worker import Worker

__version__ = "0.1.0"

_HOME = {
    "ActionRecord": "trueup.store.actions",
    "Again": "trueup.reconcile.outcome",
    "App": "trueup.app",
    "ConfigError": "trueup.errors",
    "Context": "trueup.jobs.context",
    "DatabaseUnavailable": "trueup.errors",
    "Delete": "trueup.reconcile.outcome",
    "Discard": "trueup.jobs.outcome",
    "Draft": "trueup.jobs.job",
    "DuplicateJob": "trueup.errors",
    "EmbeddedUnavailable": "trueup.errors",
    "EnqueueCall": "trueup.jobs.middleware",
    "Enqueued": "trueup.jobs.handle",
    "Exhausted": "trueup.jobs.exhausted",
    "Failed": "trueup.reconcile.failed",
    "Finding": "trueup.operate.checks",
    "GiveUp": "trueup.jobs.outcome",
    "Handle": "trueup.jobs.handle",
    "HandlerCall": "trueup.jobs.job",
    "InvalidArguments": "trueup.errors",
    "Job": "trueup.jobs.definition",
    "JobCancelled": "trueup.errors",
    "JobCount": "trueup.jobs.records",
    "JobDetails": "trueup.jobs.records",
    "JobError": "trueup.jobs.records",
    "JobFailed": "trueup.errors",
    "JobPage": "trueup.jobs.records",
    "JobProgress": "trueup.jobs.records",
    "JobSummary": "trueup.jobs.records",
    "JobTimeout": "trueup.jobs.outcome",
    "Lease": "trueup.work.leases.hold",
    "Limit": "trueup.jobs.limits",
    "LostClaim": "trueup.errors",
    "LostLease": "trueup.errors",
    "NotAcquired": "trueup.errors",
    "NotFound": "trueup.errors",
    "Now": "trueup.reconcile.outcome",
    "Pause": "trueup.jobs.records",
    "QueueDepth": "trueup.jobs.records",
    "Rate": "trueup.durations",
    "RateExceeded": "trueup.errors",
    "ResultMismatch": "trueup.errors",
    "ResultTimeout": "trueup.errors",
    "Retry": "trueup.backoff",
    "Row": "trueup.reconcile.row",
    "SchemaMismatch": "trueup.errors",
    "Snooze": "trueup.jobs.outcome",
    "Stay": "trueup.reconcile.outcome",
    "Table": "trueup.reconcile.declare",
    "Tick": "trueup.jobs.tick",
    "To": "trueup.reconcile.outcome",
    "TrueupError": "trueup.errors",
    "Unchanged": "trueup.reconcile.outcome",
    "UnknownKind": "trueup.errors",
    "Worker": "trueup.work.worker",
    "WorkerInfo": "trueup.jobs.records",
    "injected": "trueup.jobs.context",
}

__all__ = [
    "ActionRecord",
    "Again",
    "App",
    "ConfigError",
    "Context",
    "DatabaseUnavailable",
    "Delete",
    "Discard",
    "Draft",
    "DuplicateJob",
    "EmbeddedUnavailable",
    "EnqueueCall",
    "Enqueued",
    "Exhausted",
    "Failed",
    "Finding",
    "GiveUp",
    "Handle",
    "HandlerCall",
    "InvalidArguments",
    "Job",
    "JobCancelled",
    "JobCount",
    "JobDetails",
    "JobError",
    "JobFailed",
    "JobPage",
    "JobProgress",
    "JobSummary",
    "JobTimeout",
    "Lease",
    "Limit",
    "LostClaim",
    "LostLease",
    "NotAcquired",
    "NotFound",
    "Now",
    "Pause",
    "QueueDepth",
    "Rate",
    "RateExceeded",
    "ResultMismatch",
    "ResultTimeout",
    "Retry",
    "Row",
    "SchemaMismatch",
    "Snooze",
    "Stay",
    "Table",
    "Tick",
    "To",
    "TrueupError",
    "Unchanged",
    "UnknownKind",
    "Worker",
    "WorkerInfo",
    "injected",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trueup' has no attribute {name!r}")
    value = globals()[name] = getattr(imported(_HOME[name]), name)
    return value
