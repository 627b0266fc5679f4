"""What happened, as values. The core emits them; logs, metrics, alerts and pages subscribe.

An event's name is stable and so are its fields: `docs/reference/events.md` lists them and a test compares. Events may be emitted from
any thread. Emitting never fails: a subscriber that raises is reported on the `trueup.events` logger and the others still hear of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

log = logging.getLogger("trueup.events")


@dataclass(frozen=True, slots=True)
class Event:
    name: ClassVar[str]


@dataclass(frozen=True, slots=True)
class JobsEnqueued(Event):
    """Jobs were put into a queue by this process (their transaction may still roll back when it is the caller's)."""

    name = "job.enqueued"
    kind: str
    queue: str
    count: int
    kept: int


@dataclass(frozen=True, slots=True)
class JobsClaimed(Event):
    """A batch was claimed."""

    name = "job.claimed"
    holder: str
    count: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class JobStarted(Event):
    """A handler was entered. `lateness_ms` counts from the moment the job was due to the moment it was claimed."""

    name = "job.started"
    job_id: int
    kind: str
    queue: str
    attempt: int
    term: int
    lateness_ms: float


@dataclass(frozen=True, slots=True)
class JobCompleted(Event):
    """running -> done, committed."""

    name = "job.completed"
    job_id: int
    kind: str
    queue: str
    attempt: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class JobRetried(Event):
    """running -> queued after a failed attempt."""

    name = "job.retried"
    job_id: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    delay_ms: float
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class JobSnoozed(Event):
    """running -> queued because the handler asked for later; no attempt spent."""

    name = "job.snoozed"
    job_id: int
    kind: str
    queue: str
    delay_ms: float


@dataclass(frozen=True, slots=True)
class JobReleased(Event):
    """running -> queued at shutdown; no attempt spent."""

    name = "job.released"
    job_id: int
    kind: str
    queue: str


@dataclass(frozen=True, slots=True)
class JobBuried(Event):
    """running -> dead."""

    name = "job.buried"
    job_id: int
    kind: str
    queue: str
    attempt: int
    reason: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class JobDropped(Event):
    """running -> cancelled: discarded by its handler, or stopped on request."""

    name = "job.dropped"
    job_id: int
    kind: str
    queue: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobRescued(Event):
    """A job of a worker whose lease passed was taken from it; `state` is where it went."""

    name = "job.rescued"
    job_id: int
    kind: str
    attempt: int
    state: str
    held_by: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class JobClaimLost(Event):
    """A finish was refused: the claim had passed to somebody else (`database`), or we no longer trusted it (`local`)."""

    name = "job.claim_lost"
    job_id: int
    kind: str
    term: int
    refused_by: str


@dataclass(frozen=True, slots=True)
class JobsCancelled(Event):
    """queued -> cancelled, by a person or by code; `asked` counts running ones that were asked to stop."""

    name = "job.cancelled"
    count: int
    asked: int
    reason: str


@dataclass(frozen=True, slots=True)
class JobsRevived(Event):
    """dead -> queued, by a person."""

    name = "job.revived"
    count: int


@dataclass(frozen=True, slots=True)
class JobsDiscarded(Event):
    """dead -> cancelled, by a person."""

    name = "job.discarded"
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class JobResultDropped(Event):
    """A job is done but what it returned could not be stored."""

    name = "job.result_dropped"
    job_id: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobFailedAfterDone(Event):
    """A handler raised after its `ctx.transaction()` had already committed the job as done."""

    name = "job.failed_after_done"
    job_id: int
    kind: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class WorkerStarted(Event):
    """A worker began a life as this holder; after losing its lease it begins another."""

    name = "worker.started"
    holder: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    kinds: int


@dataclass(frozen=True, slots=True)
class WorkerStopping(Event):
    """No more claims; running jobs get up to `drain_s` seconds."""

    name = "worker.stopping"
    holder: str
    running: int
    waiting: int
    drain_s: float


@dataclass(frozen=True, slots=True)
class WorkerStopped(Event):
    """A worker has ended: `released` jobs were handed back; `abandoned` handlers ignored their cancellation."""

    name = "worker.stopped"
    holder: str
    released: int
    abandoned: int


@dataclass(frozen=True, slots=True)
class WorkerLeaseLost(Event):
    """This process stopped trusting its lease: handlers are cancelled, their finishes refused, and it starts anew as another holder."""

    name = "worker.lease_lost"
    holder: str
    reason: str
    jobs: int


@dataclass(frozen=True, slots=True)
class WorkerExpired(Event):
    """Another worker's lease passed and nothing of it is left."""

    name = "worker.expired"
    holder: str
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class RenewalFailed(Event):
    """The lease could not be renewed this time; it is tried again until `trusted_for_s` is used up."""

    name = "worker.renewal_failed"
    holder: str
    error: str
    trusted_for_s: float


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """The event loop has not run for a while; `handler` is the job whose code is on its stack, if it is one."""

    name = "worker.loop_blocked"
    handler: str
    seconds: float
    stack: str


@dataclass(frozen=True, slots=True)
class DatabaseLost(Event):
    """A part of this process lost its connection and goes on trying."""

    name = "database.lost"
    part: str
    error: str


@dataclass(frozen=True, slots=True)
class DatabaseRestored(Event):
    """The part has a working connection again."""

    name = "database.restored"
    part: str
    after_s: float


@dataclass(frozen=True, slots=True)
class ListenUnavailable(Event):
    """Notifications do not arrive (a transaction pooler, perhaps): polling alone carries on, a little more often."""

    name = "listen.unavailable"
    reason: str


@dataclass(frozen=True, slots=True)
class ListenRestored(Event):
    """Notifications arrive again."""

    name = "listen.restored"


@dataclass(frozen=True, slots=True)
class LeaseAcquired(Event):
    """A lease of users' code was taken by this process."""

    name = "lease.acquired"
    lease: str
    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """A lease of users' code passed, or went to somebody else, while this process used it."""

    name = "lease.lost"
    lease: str
    term: int
    holder: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseNotReleased(Event):
    """A lease of users' code could not be given back; it ends by itself when its time has passed."""

    name = "lease.not_released"
    lease: str
    term: int
    holder: str
    error: str


@dataclass(frozen=True, slots=True)
class RunPostponed(Event):
    """A run of a schedule with `lease=` could not ask for it: it waits for whoever keeps the lease, and spends no attempt."""

    name = "tick.postponed"
    schedule: str
    due_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class RunHandledElsewhere(Event):
    """A run of a schedule with `lease=` found the lease taken: its tick counts as skipped."""

    name = "tick.handled_elsewhere"
    schedule: str
    due_at: str
    reason: str


@dataclass(frozen=True, slots=True)
class TicksDecided(Event):
    """A pass of the planner: so many ticks were fired, so many skipped with a reason."""

    name = "tick.decided"
    fired: int
    skipped: int


@dataclass(frozen=True, slots=True)
class ScheduleChanged(Event):
    """A schedule was declared, changed, paused, resumed, retired or deleted."""

    name = "schedule.changed"
    schedule: str
    what: str


@dataclass(frozen=True, slots=True)
class ScheduleUnreadable(Event):
    """A schedule's row says something this release does not know; its newer planners must see to it."""

    name = "schedule.unreadable"
    schedule: str
    error: str


@dataclass(frozen=True, slots=True)
class RowsClaimed(Event):
    """A batch of rows was claimed for a reconciler."""

    name = "row.claimed"
    reconciler: str
    holder: str
    count: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RowChanged(Event):
    """An outcome was written to its row. `outcome` is To, Stay or Delete; `lateness_ms` counts from when the row was due or stale."""

    name = "row.changed"
    reconciler: str
    key: str
    outcome: str
    state_from: str | None
    state_to: str | None
    attempt: int
    lateness_ms: float
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RowUnchanged(Event):
    """A handler had nothing to write; the row is looked at again after `again_ms`."""

    name = "row.unchanged"
    reconciler: str
    key: str
    again_ms: float


@dataclass(frozen=True, slots=True)
class RowConflict(Event):
    """An outcome was not written: somebody else had moved, touched or deleted the row meanwhile."""

    name = "row.conflict"
    reconciler: str
    key: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RowRetried(Event):
    """A handler failed; the row is left alone for `delay_ms`."""

    name = "row.retried"
    reconciler: str
    key: str
    attempt: int
    max_attempts: int
    delay_ms: float
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RowQuarantined(Event):
    """A row is left alone until a person releases it."""

    name = "row.quarantined"
    reconciler: str
    key: str
    attempt: int
    reason: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RowReleased(Event):
    """A claimed row was handed back unfinished, at a shutdown; its attempt is given back."""

    name = "row.released"
    reconciler: str
    key: str


@dataclass(frozen=True, slots=True)
class RowClaimLost(Event):
    """An outcome was refused: the row's lease had passed (`database`), or we no longer trusted it (`local`).

    `unknown`: it was sent and no answer came; it may have been written, and is not written again.
    """

    name = "row.claim_lost"
    reconciler: str
    key: str
    term: int
    refused_by: str


@dataclass(frozen=True, slots=True)
class RowProposed(Event):
    """In shadow mode: what would have been done to a row."""

    name = "row.proposed"
    reconciler: str
    key: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RowsFreed(Event):
    """Rows in quarantine were released or discarded by a person."""

    name = "row.freed"
    reconciler: str
    count: int
    what: str


@dataclass(frozen=True, slots=True)
class SweepCompleted(Event):
    """A sweep found nothing more to do, or its time was up. Sweeps that found no row are not told of."""

    name = "sweep.completed"
    reconciler: str
    claimed: int
    changed: int
    unchanged: int
    conflict: int
    retry: int
    quarantined: int
    lost: int
    late: int
    worst_lateness_s: float
    average_lateness_s: float
    duration_ms: float
    rows_per_second: float


@dataclass(frozen=True, slots=True)
class SweepRefused(Event):
    """A sweep did not begin: it would have touched a larger part of the table than it may."""

    name = "sweep.refused"
    reconciler: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReconcilerDeclared(Event):
    """A worker looked at the table of a reconciler, and will sweep it."""

    name = "reconciler.declared"
    reconciler: str
    table: str


@dataclass(frozen=True, slots=True)
class ReconcilerPaused(Event):
    """A reconciler rests: it failed for the same reason over and over, or a person paused it."""

    name = "reconciler.paused"
    reconciler: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ReconcilerResumed(Event):
    """A reconciler works again after a pause."""

    name = "reconciler.resumed"
    reconciler: str


@dataclass(frozen=True, slots=True)
class IndexMissing(Event):
    """A reconciler's claim would read a large table from end to end; `ddl` makes the index that would serve it."""

    name = "reconciler.index_missing"
    reconciler: str
    table: str
    rows: int
    ddl: str


@dataclass(frozen=True, slots=True)
class ScanCompleted(Event):
    """A scan came to its end."""

    name = "scan.completed"
    scan: str
    items: int
    failed: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class ScanItemFailed(Event):
    """The handler of one item raised; the scan goes on."""

    name = "scan.item_failed"
    scan: str
    item: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class DowntimeFound(Event):
    """The first worker after a while in which none was alive. What was missed is caught up with from here on."""

    name = "fleet.downtime"
    since: str
    until: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ServiceFailed(Event):
    """One pass of a loop raised; the loop goes on."""

    name = "service.failed"
    service: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class HistoryDayCreated(Event):
    """A partition for a coming day was made."""

    name = "history.day_created"
    partition: str


@dataclass(frozen=True, slots=True)
class HistoryDayDropped(Event):
    """A day past its retention was dropped."""

    name = "history.day_dropped"
    partition: str


@dataclass(frozen=True, slots=True)
class MigrationApplied(Event):
    """A step of the schema was applied by this process."""

    name = "migration.applied"
    number: int
    step: str
    title: str
    duration_ms: float


Subscriber = Callable[[Event], None]


class Events:
    """Hands each event to those who asked for its class."""

    def __init__(self) -> None:
        self._all: list[Subscriber] = []
        self._by_class: dict[type[Event], list[Subscriber]] = {}
        self._wanted: dict[type[Event], tuple[Subscriber, ...]] = {}

    def subscribe(self, subscriber: Subscriber, *classes: type[Event]) -> Callable[[], None]:
        """Call `subscriber` with events of these classes (none: all). Returns what ends the subscription."""
        lists = [self._by_class.setdefault(cls, []) for cls in classes] or [self._all]
        for subscribers in lists:
            subscribers.append(subscriber)
        self._wanted.clear()

        def end() -> None:
            for subscribers in lists:
                if subscriber in subscribers:
                    subscribers.remove(subscriber)
            self._wanted.clear()

        return end

    def wants(self, cls: type[Event]) -> bool:
        """Whether anybody listens; spares building events that come by the thousand."""
        return bool(self._subscribers(cls))

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers(type(event)):
            try:
                subscriber(event)
            except Exception:
                log.exception("subscriber failed on %s", event.name)

    def _subscribers(self, cls: type[Event]) -> tuple[Subscriber, ...]:
        wanted = self._wanted.get(cls)
        if wanted is None:
            wanted = self._wanted[cls] = (*self._all, *self._by_class.get(cls, ()))
        return wanted
