"""Jobs as people and programs read them: snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any, Self
from uuid import UUID


@dataclass(frozen=True, slots=True)
class JobError:
    """A failed attempt, with the worker that made it and the term of its claim.

    A worker of an older release stores neither, so `holder`, `term`, `host` and `pid` may be None.
    """

    attempt: int
    type: str
    message: str
    at: datetime | None = None
    traceback: str | None = None
    holder: UUID | None = None
    term: int | None = None
    host: str | None = None
    pid: int | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    @classmethod
    def of(cls, stored: Any) -> Self:
        """The stored error. One that does not have the shape that workers write is shown as well as possible: it must not hide
        its job."""
        if not isinstance(stored, Mapping):
            return cls(0, "Error", "" if stored is None else str(stored))
        return cls(
            _whole(stored.get("attempt")) or 0,
            _text(stored.get("type")) or "Error",
            _text(stored.get("message")) or "",
            _moment(stored.get("at")),
            _text(stored.get("traceback")),
            _holder(stored.get("holder")),
            _whole(stored.get("term")),
            _text(stored.get("host")),
            _whole(stored.get("pid")),
        )

    @classmethod
    def all_of(cls, stored: Any) -> tuple[Self, ...]:
        """Every failed attempt of a job or a row, the oldest first."""
        return tuple(map(cls.of, stored if isinstance(stored, list) else [stored] if stored else ()))

    @property
    def made_by(self) -> str:
        """The worker that made the attempt, and the term of its claim, in words; empty when an older release stored it."""
        process = f"{self.host}, pid {self.pid}" if self.host and self.pid else ""
        words = (process, f"term {self.term}" if self.term else "", f"holder {self.holder}" if self.holder else "")
        return ", ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress that a handler stored with `ctx.progress(percent, note)`."""

    percent: float
    note: str | None = None
    at: datetime | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        return cls(_number(stored.get("percent")), _text(stored.get("note")), _moment(stored.get("at")))


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job in a list. `error` is that of its last failed attempt, `finished_at` is None while the job is live."""

    id: int
    kind: str
    queue: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    run_at: datetime
    enqueued_at: datetime
    finished_at: datetime | None
    error: JobError | None
    progress: JobProgress | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        return cls(**{**record, "error": _error(record["error"]), "progress": _progress(record["progress"])})


@dataclass(frozen=True, slots=True)
class JobDetails:
    """Everything about one job. `errors` are its failed attempts, the oldest first; `result` is as JSON gives it back."""

    id: int
    kind: str
    queue: str
    lane: str
    key: str
    state: str
    priority: int
    run_at: datetime
    args: dict[str, Any]
    unique_key: str | None
    attempt: int
    max_attempts: int
    crashes: int
    term: int
    holder: UUID | None
    enqueued_at: datetime
    claimed_at: datetime | None
    cancel_requested_at: datetime | None
    finished_at: datetime | None
    progress: JobProgress | None
    errors: tuple[JobError, ...]
    result: Any
    reason: str | None
    meta: dict[str, Any] | None = None  # from `using(meta=…)` and middleware

    @property
    def error(self) -> JobError | None:
        """The last failed attempt."""
        return self.errors[-1] if self.errors else None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        errors = JobError.all_of(record["errors"])
        return cls(**{**record, "errors": errors, "progress": _progress(record["progress"])})


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions on jobs, combined with AND. `arguments` are names and values that the job's arguments contain, as JSON."""

    states: tuple[str, ...]
    kind: str | None = None
    queue: str | None = None
    schedule: str | None = None
    min_attempts: int = 0
    arguments: str | None = None
    error_contains: str | None = None
    older_than_s: float | None = None

    @property
    def selective(self) -> bool:
        """Whether it filters within its states, so that finding a few jobs may mean reading many."""
        given = (self.kind, self.queue, self.schedule, self.arguments, self.error_contains, self.older_than_s)
        return self.min_attempts > 0 or any(each is not None for each in given)


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs, newest first. `next` is the `after=` of the following page, None after the last one.

    One call reads a bounded number of jobs, so a page of a rare kind may have fewer jobs than asked for, or none, and a `next`.
    """

    jobs: tuple[JobSummary, ...]
    next: int | None = None

    def __iter__(self) -> Iterator[JobSummary]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


@dataclass(frozen=True, slots=True)
class JobCount:
    """How many jobs were found. With `more`, counting ended early and there may be more than that."""

    number: int
    more: bool = False

    @property
    def any(self) -> bool:
        """Whether there may be any."""
        return self.more or self.number > 0

    def __bool__(self) -> bool:
        return self.any

    def __int__(self) -> int:
        return self.number

    def __str__(self) -> str:
        return f"{self.number:,}{'+' if self.more else ''}"


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The live jobs of one kind in one queue. `oldest_due_s` is for how many seconds the oldest due job has waited."""

    queue: str
    kind: str
    queued: int
    due: int
    running: int
    oldest_due_s: float | None
    paused: bool = False  # the queue or the kind is paused


@dataclass(frozen=True, slots=True)
class Pause:
    """A queue or a kind (`what`) that is paused: none of its jobs is claimed."""

    what: str
    name: str
    paused_at: datetime
    paused_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process. It is gone, and its jobs are about to be taken over, when `lease_left_s` is not above 0."""

    holder: UUID
    host: str
    pid: int
    release: str | None
    queues: tuple[str, ...]
    concurrency: int
    running: int
    started_at: datetime
    lease_left_s: float
    stopping: bool

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        return cls(**{**record, "queues": tuple(record["queues"])})


def _moment(text: Any) -> datetime | None:
    """The time that the failed process wrote; None if it is not a time."""
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo is not None else None


def _holder(text: Any) -> UUID | None:
    try:
        return UUID(text)
    except (AttributeError, TypeError, ValueError):
        return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if isfinite(number) else 0.0


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _error(stored: Any) -> JobError | None:
    return None if stored is None else JobError.of(stored)


def _progress(stored: Any) -> JobProgress | None:
    return JobProgress.of(stored) if isinstance(stored, Mapping) else None
