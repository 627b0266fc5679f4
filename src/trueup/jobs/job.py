"""A job as values: a draft before it is stored, and a claimed job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

OnConflict = Literal["keep", "replace", "raise"]


class Draft(NamedTuple):
    """A job before it is stored: everything about it except the current time. `job.call(…)` makes one without storing it.

    A tuple, because bulk enqueueing makes them by the hundred thousand.
    """

    kind: str
    queue: str
    lane: str
    args: str
    max_attempts: int
    key: str = ""
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta = timedelta()
    unique_key: str | None = None
    unique_for: timedelta | None = None
    on_conflict: OnConflict = "keep"
    meta: str | None = None  # JSON, as `args` are; see jobs.middleware
    own_meta: str | None = None  # what `using(meta=…)` gave: a schedule keeps that, and nothing of middleware


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of a handler, as middleware sees it: for a job, a row of a reconciler or an item of a scan.

    `exhausted` is the call of a job's `exhausted=`, after its last attempt. `name` is the kind, or the reconciler's or scan's name.
    `id` is the job's, or the row's key. Only jobs have a queue and `meta`.
    """

    what: Literal["job", "exhausted", "row", "scan"]
    name: str
    id: int | str | None
    attempt: int
    queue: str | None
    meta: Mapping[str, Any]


@dataclass(slots=True)
class ClaimedJob:
    """A running job as its holder knows it. After the holder, fields are in the claim statements' column order."""

    holder: UUID
    id: int
    kind: str
    queue: str
    lane: str
    key: str
    args: str
    attempt: int
    max_attempts: int
    crashes: int
    term: int
    run_at: datetime
    enqueued_at: datetime
    claimed_at: datetime
    rank: datetime  # the order of starting: when it was due, less its head start by priority
    schedule: str | None = None  # the schedule whose tick this job is
    # When that tick was due; of any other job, when it was claimed before its first snooze.
    due_at: datetime | None = None
    # During an earlier attempt, which failed or was handed back before it could be cancelled.
    asked_to_stop: bool = False
    exhausting: str | None = None  # no attempt is left, and only `exhausted=` is to be called; see jobs.exhausted
    meta: str | None = None

    def handler_call(self, what: Literal["job", "exhausted"] = "job") -> HandlerCall:
        meta = {} if self.meta is None else json.loads(self.meta)
        return HandlerCall(what, self.kind, self.id, self.attempt, self.queue, meta)

    @property
    def lateness(self) -> timedelta:
        """How long after it was due the job was claimed."""
        return self.claimed_at - self.run_at

    @property
    def snoozed_for(self) -> timedelta:
        """How long ago the job was claimed before it was first snoozed (or its tick was due); zero if it never was."""
        return timedelta() if self.due_at is None else max(self.claimed_at - self.due_at, timedelta())

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this job: pass it to the services that the handler calls.

        Ids alone are reused: by another database, and by one that was restored or lost its last commits in a failover. So the
        time of enqueueing is part of it. It is stored with the job, and survives retries, takeovers and a revival.
        """
        return f"{self.kind}:{self.id}@{self.enqueued_at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


@dataclass(frozen=True, slots=True)
class Tick:
    """One due time of a schedule. `lateness` is how long after it the run was claimed; `attempt` starts at 1."""

    schedule: str
    due_at: datetime
    lateness: timedelta
    attempt: int
