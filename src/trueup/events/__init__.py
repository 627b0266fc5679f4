"""What happened, as values. The core emits them; logs, metrics, alerts and pages subscribe.

An event's name is stable and so are its fields: `docs/reference/events.md` lists them and a test compares. Events may be emitted from
any thread. Emitting never fails: a subscriber that raises is reported on the `trueup.events` logger and the others still hear of it.

Each noun has its file; everybody imports from here.
"""

from __future__ import annotations

from trueup.events.bus import Events, Subscriber
from trueup.events.database import (
    DatabaseLost,
    DatabaseRestored,
    HistoryDayCreated,
    HistoryDayDropped,
    ListenRestored,
    ListenUnavailable,
    MigrationApplied,
    MigrationWaits,
    NotificationIgnored,
    StatementTimedOut,
)
from trueup.events.event import Event
from trueup.events.jobs import (
    ExecutorBroken,
    JobBuried,
    JobClaimLost,
    JobCompleted,
    JobDropped,
    JobFailedAfterDone,
    JobFinishRefused,
    JobReleased,
    JobRescued,
    JobResultDropped,
    JobRetried,
    JobsCancelled,
    JobsClaimed,
    JobsDiscarded,
    JobsEnqueued,
    JobSnoozed,
    JobsRevived,
    JobStarted,
    JobsUnserved,
)
from trueup.events.leases import LeaseAcquired, LeaseGrantedOpenly, LeaseLost, LeaseNotReleased
from trueup.events.reconcilers import (
    IndexMissing,
    ReconcilerDeclared,
    ReconcilerPaused,
    ReconcilerResumed,
    ScanCompleted,
    ScanItemFailed,
    SweepCompleted,
    SweepFailed,
    SweepRefused,
)
from trueup.events.rows import (
    RowChanged,
    RowClaimLost,
    RowConflict,
    RowProposed,
    RowQuarantined,
    RowReleased,
    RowRetried,
    RowsClaimed,
    RowsFreed,
    RowUnchanged,
    RowUndone,
)
from trueup.events.schedules import (
    RunHandledElsewhere,
    RunPostponed,
    ScheduleAhead,
    ScheduleChanged,
    ScheduleRetired,
    ScheduleUndeclared,
    ScheduleUnreadable,
    TicksDecided,
)
from trueup.events.streams import DuplicateWindowShort
from trueup.events.workers import (
    DowntimeFound,
    LoopBlocked,
    RenewalFailed,
    ServiceFailed,
    WorkerExpired,
    WorkerLeaseLost,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)

__all__ = [
    "DatabaseLost",
    "DatabaseRestored",
    "DowntimeFound",
    "DuplicateWindowShort",
    "Event",
    "Events",
    "ExecutorBroken",
    "HistoryDayCreated",
    "HistoryDayDropped",
    "IndexMissing",
    "JobBuried",
    "JobClaimLost",
    "JobCompleted",
    "JobDropped",
    "JobFailedAfterDone",
    "JobFinishRefused",
    "JobReleased",
    "JobRescued",
    "JobResultDropped",
    "JobRetried",
    "JobSnoozed",
    "JobStarted",
    "JobsCancelled",
    "JobsClaimed",
    "JobsDiscarded",
    "JobsEnqueued",
    "JobsRevived",
    "JobsUnserved",
    "LeaseAcquired",
    "LeaseGrantedOpenly",
    "LeaseLost",
    "LeaseNotReleased",
    "ListenRestored",
    "ListenUnavailable",
    "LoopBlocked",
    "MigrationApplied",
    "MigrationWaits",
    "NotificationIgnored",
    "ReconcilerDeclared",
    "ReconcilerPaused",
    "ReconcilerResumed",
    "RenewalFailed",
    "RowChanged",
    "RowClaimLost",
    "RowConflict",
    "RowProposed",
    "RowQuarantined",
    "RowReleased",
    "RowRetried",
    "RowUnchanged",
    "RowUndone",
    "RowsClaimed",
    "RowsFreed",
    "RunHandledElsewhere",
    "RunPostponed",
    "ScanCompleted",
    "ScanItemFailed",
    "ScheduleAhead",
    "ScheduleChanged",
    "ScheduleRetired",
    "ScheduleUndeclared",
    "ScheduleUnreadable",
    "ServiceFailed",
    "StatementTimedOut",
    "Subscriber",
    "SweepCompleted",
    "SweepFailed",
    "SweepRefused",
    "TicksDecided",
    "WorkerExpired",
    "WorkerLeaseLost",
    "WorkerStarted",
    "WorkerStopped",
    "WorkerStopping",
]

# A pickle names the module of a class: it is this one, whichever file the class is written in.
for _each in tuple(globals().values()):
    if isinstance(_each, type) and _each.__module__.startswith(f"{__name__}."):
        _each.__module__ = __name__
