"""Keep your tables true: durable jobs, schedules, leases and reconcilers on the PostgreSQL you already have."""

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
    NotFound,
    ResultTimeout,
    SchemaMismatch,
    TrueupError,
    UnknownKind,
)
from trueup.jobs.context import Context, injected
from trueup.jobs.definition import Job
from trueup.jobs.handle import Enqueued, Handle
from trueup.jobs.limits import Limit
from trueup.jobs.outcome import Discard, GiveUp, JobTimeout, Snooze
from trueup.worker.runtime import Worker

__version__ = "0.1.0"

__all__ = [
    "App",
    "ConfigError",
    "Context",
    "DatabaseUnavailable",
    "Discard",
    "DuplicateJob",
    "EmbeddedUnavailable",
    "Enqueued",
    "GiveUp",
    "Handle",
    "InvalidArguments",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobTimeout",
    "Limit",
    "LostClaim",
    "NotFound",
    "Rate",
    "ResultTimeout",
    "Retry",
    "SchemaMismatch",
    "Snooze",
    "TrueupError",
    "UnknownKind",
    "Worker",
    "injected",
]
