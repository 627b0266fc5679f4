"""What happens to jobs."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class JobsEnqueued(Event):
    """Jobs were put into a queue by this process. Those of `app.transaction()` and `ctx.transaction()` are reported when it is
    committed; a connection or session of your own passed as `tx=` may still be rolled back."""

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
    """A handler was called. `lateness_ms` is the time from when the job was due until it was claimed."""

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
    """running -> queued after a failed attempt, which took `duration_ms`."""

    name = "job.retried"
    job_id: int
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    delay_ms: float
    error_type: str
    error: str
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class JobSnoozed(Event):
    """running -> queued because the handler raised `Snooze`; no attempt spent."""

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
class JobDeferred(Event):
    """running -> queued, to be buried later: its `exhausted=` failed (`error`), or the worker stopped before it was called.

    The handler is not called again. `tries` calls of `exhausted=` have failed so far; after the tenth the job is buried without it.
    """

    name = "job.deferred"
    job_id: int
    kind: str
    queue: str
    reason: str
    tries: int
    delay_ms: float
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class JobBuried(Event):
    """running -> dead. `duration_ms` is how long its last attempt took; null when no attempt failed just now."""

    name = "job.buried"
    job_id: int
    kind: str
    queue: str
    attempt: int
    reason: str
    error_type: str
    error: str
    duration_ms: float | None = None


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
    """A job was taken over from a worker whose lease expired; `state` is its new state.

    Without a host, the worker had left before its claim committed: no handler saw the job, and no attempt was spent.
    """

    name = "job.rescued"
    job_id: int
    kind: str
    attempt: int
    state: str
    held_by: str
    host: str
    pid: int
    exhausting: bool = False  # that was its last attempt: a worker that knows its kind calls `exhausted=` and buries it


@dataclass(frozen=True, slots=True)
class JobFinishRefused(Event):
    """PostgreSQL refused to write the outcome of a job (for example, its row is locked), and the worker keeps it and tries again; or
    refused to take it over from a dead worker (`move` is "rescue") or to hand it out (`move` is "claim"), and the others are without it."""

    name = "job.finish_refused"
    job_id: int
    kind: str
    move: str
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class ExecutorBroken(Event):
    """A process of a job's executor died, or its cluster is unreachable. A pool from a factory is `replaced`; jobs of any other
    executor are postponed."""

    name = "executor.broken"
    kind: str
    error: str
    replaced: bool


@dataclass(frozen=True, slots=True)
class JobClaimLost(Event):
    """A finish was refused: another worker had taken over the job (`database`), or this one no longer trusted its lease (`local`)."""

    name = "job.claim_lost"
    job_id: int
    kind: str
    term: int
    refused_by: str


@dataclass(frozen=True, slots=True)
class JobsCancelled(Event):
    """queued -> cancelled, by a person or by code; `asked` counts running ones whose workers were notified."""

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
class JobsUnserved(Event):
    """Jobs are due that no living worker runs: none that serves their queue knows their kind. `waiting` counts up to 100."""

    name = "job.unserved"
    kind: str
    queue: str
    waiting: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class JobResultDropped(Event):
    """A job is done but its result could not be stored."""

    name = "job.result_dropped"
    job_id: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobFailedAfterDone(Event):
    """A handler raised after its `ctx.transaction()` had already committed the job as done, or middleware around `exhausted=`
    raised after the job was buried."""

    name = "job.failed_after_done"
    job_id: int
    kind: str
    error_type: str
    error: str
