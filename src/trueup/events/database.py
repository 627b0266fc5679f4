"""What happens between this process and its database, and to the schema and the history in there."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class DatabaseLost(Event):
    """A part of this process lost its connection and keeps trying to reconnect."""

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
class ConnectionAwaited(Event):
    """A caller waited 50 ms or longer for a connection of the pool: all `pool_size` were in use, or the server was away.

    `got` is false when it gave up after `pool_timeout`.
    """

    name = "database.awaited"
    waited_ms: float
    got: bool


@dataclass(frozen=True, slots=True)
class StatementTimedOut(Event):
    """The server ended a statement of this part that waited for a lock, or ran, almost as long as statement_timeout allows.

    The part tries again; the event is emitted once until one of its statements succeeds.
    """

    name = "database.timed_out"
    part: str
    error: str


@dataclass(frozen=True, slots=True)
class ListenUnavailable(Event):
    """Notifications do not arrive (perhaps because of a transaction pooler): the worker polls instead, more often."""

    name = "listen.unavailable"
    reason: str


@dataclass(frozen=True, slots=True)
class ListenRestored(Event):
    """Notifications arrive again."""

    name = "listen.restored"


@dataclass(frozen=True, slots=True)
class NotificationIgnored(Event):
    """A payload on our channel that is not from trueup. Any role that may connect to the database can send one."""

    name = "listen.ignored"
    payload: str


@dataclass(frozen=True, slots=True)
class HistoryDayCreated(Event):
    """A partition for a coming day was created."""

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


@dataclass(frozen=True, slots=True)
class MigrationWaits(Event):
    """A step of the schema could not lock its tables. It was rolled back and will be tried again; it blocks no other session meanwhile."""

    name = "migration.waits"
    step: str
    blockers: str
    waited_s: float
