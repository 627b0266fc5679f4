"""Keep your tables true: durable jobs, schedules, leases and reconcilers on the PostgreSQL you already have.

The names below are the public ones. Each is imported when it is first used, so that small parts (the embedded server's
keeper, `trueup --help`) do not pay for all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trueup.building import imported

if TYPE_CHECKING:
    from trueup.app import App as App
    from trueup.backoff import Retry as Retry
    from trueup.durations import Rate as Rate
    from trueup.errors import ConfigError as ConfigError
    from trueup.errors import DatabaseUnavailable as DatabaseUnavailable
    from trueup.errors import DuplicateJob as DuplicateJob
    from trueup.errors import EmbeddedUnavailable as EmbeddedUnavailable
    from trueup.errors import InvalidArguments as InvalidArguments
    from trueup.errors import JobCancelled as JobCancelled
    from trueup.errors import JobFailed as JobFailed
    from trueup.errors import LostClaim as LostClaim
    from trueup.errors import LostLease as LostLease
    from trueup.errors import NotAcquired as NotAcquired
    from trueup.errors import NotFound as NotFound
    from trueup.errors import RateExceeded as RateExceeded
    from trueup.errors import ResultMismatch as ResultMismatch
    from trueup.errors import ResultTimeout as ResultTimeout
    from trueup.errors import SchemaMismatch as SchemaMismatch
    from trueup.errors import TrueupError as TrueupError
    from trueup.errors import UnknownKind as UnknownKind
    from trueup.jobs.context import Context as Context
    from trueup.jobs.context import injected as injected
    from trueup.jobs.definition import Job as Job
    from trueup.jobs.exhausted import Exhausted as Exhausted
    from trueup.jobs.handle import Enqueued as Enqueued
    from trueup.jobs.handle import Handle as Handle
    from trueup.jobs.job import Draft as Draft
    from trueup.jobs.job import HandlerCall as HandlerCall
    from trueup.jobs.job import Tick as Tick
    from trueup.jobs.limits import Limit as Limit
    from trueup.jobs.middleware import EnqueueCall as EnqueueCall
    from trueup.jobs.outcome import Discard as Discard
    from trueup.jobs.outcome import GiveUp as GiveUp
    from trueup.jobs.outcome import JobTimeout as JobTimeout
    from trueup.jobs.outcome import Snooze as Snooze
    from trueup.jobs.records import JobCount as JobCount
    from trueup.jobs.records import JobDetails as JobDetails
    from trueup.jobs.records import JobError as JobError
    from trueup.jobs.records import JobPage as JobPage
    from trueup.jobs.records import JobProgress as JobProgress
    from trueup.jobs.records import JobSummary as JobSummary
    from trueup.jobs.records import Pause as Pause
    from trueup.jobs.records import QueueDepth as QueueDepth
    from trueup.jobs.records import WorkerInfo as WorkerInfo
    from trueup.operate.checks import Finding as Finding
    from trueup.reconcile.declare import Table as Table
    from trueup.reconcile.outcome import Again as Again
    from trueup.reconcile.outcome import Delete as Delete
    from trueup.reconcile.outcome import Failed as Failed
    from trueup.reconcile.outcome import Now as Now
    from trueup.reconcile.outcome import Stay as Stay
    from trueup.reconcile.outcome import To as To
    from trueup.reconcile.outcome import Unchanged as Unchanged
    from trueup.reconcile.row import Row as Row
    from trueup.store.actions import ActionRecord as ActionRecord
    from trueup.work.leases.hold import Lease as Lease
    from trueup.work.worker import Worker as Worker

__version__ = "0.1.0"

_NAMES = {
    "trueup.app": "App",
    "trueup.backoff": "Retry",
    "trueup.durations": "Rate",
    "trueup.errors": "ConfigError DatabaseUnavailable DuplicateJob EmbeddedUnavailable InvalidArguments JobCancelled JobFailed"
    " LostClaim LostLease NotAcquired NotFound RateExceeded ResultMismatch ResultTimeout SchemaMismatch TrueupError UnknownKind",
    "trueup.jobs.context": "Context injected",
    "trueup.jobs.definition": "Job",
    "trueup.jobs.exhausted": "Exhausted",
    "trueup.jobs.handle": "Enqueued Handle",
    "trueup.jobs.job": "Draft HandlerCall Tick",
    "trueup.jobs.limits": "Limit",
    "trueup.jobs.middleware": "EnqueueCall",
    "trueup.jobs.outcome": "Discard GiveUp JobTimeout Snooze",
    "trueup.jobs.records": "JobCount JobDetails JobError JobPage JobProgress JobSummary Pause QueueDepth WorkerInfo",
    "trueup.operate.checks": "Finding",
    "trueup.reconcile.declare": "Table",
    "trueup.reconcile.outcome": "Again Delete Failed Now Stay To Unchanged",
    "trueup.reconcile.row": "Row",
    "trueup.store.actions": "ActionRecord",
    "trueup.work.leases.hold": "Lease",
    "trueup.work.worker": "Worker",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # type checkers go by the imports above


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trueup' has no attribute {name!r}")
    value = globals()[name] = getattr(imported(_HOME[name]), name)
    return value
