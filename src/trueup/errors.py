"""Every error trueup raises.

TrueupError
├── ConfigError              a setting, a declaration or the environment is wrong; nothing was started
│   ├── EmbeddedUnavailable  no embedded PostgreSQL on this machine
│   └── SchemaMismatch       this release and the database's schema do not fit each other
├── MigrationBlocked         a step of the schema could not lock its tables in time
├── InvalidArguments         a job's arguments do not fit its signature or cannot be stored
├── DuplicateJob             a live job with the same unique key exists
├── UnknownKind              no job of that name is registered
├── NotFound                 no such job
├── LostClaim                the claim was replaced; what was attempted changed nothing
├── NotAcquired              another process holds the lease, or its backend cannot be reached
├── LostLease                a lease was lost while it was used
├── JobFailed                raised to callers that wait for a result
│   └── JobCancelled
├── ResultTimeout            the job is not finished yet
├── ResultMismatch           a stored result does not fit the return annotation
└── DatabaseUnavailable      PostgreSQL could not be reached

Raised by handlers to say what should happen: Snooze, Discard, GiveUp (`trueup.jobs.outcome`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

E = TypeVar("E", bound=BaseException)


def _rebuilt(cls: type[E], args: tuple[Any, ...], state: dict[str, Any]) -> E:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class Portable(Exception):
    """An error that survives pickling with any constructor: a process pool returns it as it was raised."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, vars(self))


MAX_TEXT = 10_000  # characters: enough for a line about every setting


class Final:
    """An error that decides the outcome of the job or row, so `Retry.call` does not call again."""


class TrueupError(Portable):
    """Base of everything trueup raises. Its text is bounded, however long the values it quotes."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_bounded(arg) if isinstance(arg, str) else arg for arg in args))


def _bounded(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} … {len(text) - MAX_TEXT} characters left out … {text[-half:]}"


class ConfigError(TrueupError):
    """A setting, a declaration or the environment is wrong. The message names it and what to do."""


class EmbeddedUnavailable(ConfigError):
    """The embedded PostgreSQL cannot run here; set TRUEUP_DATABASE_URL instead."""


class SchemaMismatch(ConfigError):
    """The database's trueup schema is older or newer than this release can work with."""


class MigrationBlocked(TrueupError):
    """Another session locked a table that a migration changes. The migration has changed nothing; the message names the session."""


class InvalidArguments(TrueupError):
    """Arguments that do not fit the job's signature, or that JSON in PostgreSQL cannot hold."""


class DuplicateJob(TrueupError):
    """A live job with the same unique key exists, and the caller asked not to share it."""

    def __init__(self, kind: str, unique_key: str, job_id: int, state: str) -> None:
        super().__init__(f"{kind}: a {state} job with unique key {unique_key!r} exists (id {job_id})")
        self.kind = kind
        self.unique_key = unique_key
        self.job_id = job_id
        self.state = state


class UnknownKind(TrueupError):
    """No job of that name is registered on this App."""


class NotFound(TrueupError):
    """There is no such job, or it is not in a state that allows what was asked."""


class LostClaim(Final, TrueupError):
    """The lease passed to another holder, so the attempted change was refused."""


class NotAcquired(TrueupError):
    """Another process holds the lease; or the backend gave no answer (`unreachable`), and the lease was not granted."""

    def __init__(self, name: str, reason: str = "it is held elsewhere", *, unreachable: bool = False) -> None:
        super().__init__(f"lease {name!r} was not acquired: {reason}")
        self.name = name
        self.reason = reason
        self.unreachable = unreachable


class LostLease(Final, TrueupError):
    """The lease expired, went to another holder, or was released, and is still being used."""

    def __init__(self, name: str, term: int) -> None:
        super().__init__(f"lease {name!r} of term {term} is lost or was released")
        self.name = name
        self.term = term


class RateExceeded(TrueupError):
    """The rate limit allows the next call later than the caller would wait; `after` says how long to wait."""

    def __init__(self, name: str, rate: str, after: timedelta) -> None:
        self.name = name
        self.rate = rate
        self.after = after
        super().__init__(
            f"rate {name!r} ({rate}): the next call may begin in {after.total_seconds():.3g} s; try again then"
        )


class JobFailed(TrueupError):
    """The awaited job is dead."""

    def __init__(self, message: str, job_id: int) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobCancelled(JobFailed):
    """The awaited job was cancelled or discarded."""


class ResultTimeout(TrueupError):
    """The awaited job has not finished within the given time."""


class ResultMismatch(TrueupError):
    """The job is done, but its stored result does not fit the current return annotation of its function."""


class DatabaseUnavailable(TrueupError):
    """PostgreSQL could not be reached, broke the connection, or rolled back what it was asked for; the message says which."""

    may_pass = False  # whether it may answer in a moment: it, or a pooler in front of it, starts or restarts
