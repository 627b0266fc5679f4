"""How a handler's run ended. Handlers raise Snooze, Discard and GiveUp; the worker observes everything else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from trueup.durations import Duration, duration_of, format_duration
from trueup.errors import Final, Portable
from trueup.texts import describe


class Snooze(Final, Portable):
    """Raise to run again later without spending an attempt."""

    def __init__(self, after: Duration) -> None:
        self.after = duration_of("Snooze: after", after)
        super().__init__(f"again after {format_duration(self.after)}")


class _WithReason(Final, Portable):
    """Makes its reason fit to be stored: handlers quote text that other systems have sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        return describe(self)


class Discard(_WithReason):
    """Raise when nothing is left to do: the job is cancelled, with this reason."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)


class RunSkipped(Discard):
    """A run of a schedule that did not take place: its job is cancelled, and its tick counts as skipped for `why`."""

    def __init__(self, reason: str, why: str) -> None:
        self.why = why
        super().__init__(reason)


class GiveUp(_WithReason):
    """Raise when no further attempt can help: the job is dead immediately, with this reason."""

    def __init__(self, reason: str = "given up by its handler") -> None:
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned; `result` is JSON, or None for nothing."""

    result: str | None = None


NOTHING_RETURNED = Returned()


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised, or timed out."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Unfit:
    """The handler was not called: the stored arguments do not fit its signature."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Undone:
    """The database ended the handler's transaction: a deadlock, a serialization failure, or it went away."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class AskedToStop:
    """Cancelled on request."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Cancelled, or never started, because this worker is shutting down."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """Claimed through a lane that its kind no longer uses (the declaration changed since it was enqueued)."""

    lane: str
    key: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Already committed as done together with the handler's own writes."""


@dataclass(frozen=True, slots=True)
class Over:
    """The handler was not called: all its attempts are used up or given up, and only `exhausted=` is left."""

    reason: str


@dataclass(frozen=True, slots=True)
class Untrusted:
    """The handler was not called: this process may no longer hold the job."""


Outcome = Over | Returned | Raised | Unfit | Undone | AskedToStop | Interrupted | Misplaced | Finished | Untrusted


class JobTimeout(Portable, TimeoutError):
    """A handler ran longer than its timeout."""

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"ran longer than its timeout of {format_duration(limit)}")


# Logs, tracebacks and records of failed attempts name the module of an error: it is the one that users import it from.
for _each in (Snooze, Discard, GiveUp, JobTimeout):
    _each.__module__ = "trueup"
del _each
