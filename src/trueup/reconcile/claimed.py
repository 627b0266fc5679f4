"""A claimed row, as its holder knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from trueup.jobs.job import HandlerCall
from trueup.leases.trust import Trust


@dataclass(slots=True)
class ClaimedRow:
    """`values` is the row at the claim; `seen` what its version, time of change or xmin was, for the compare-and-set."""

    reconciler: str
    holder: UUID
    key: str
    key_texts: tuple[str, ...]
    term: int
    attempt: int
    spent: bool  # a crash used up its last attempt, so its handler is not called again
    alone: bool  # claimed alone, because a process that held it has died
    state: str | None  # the state it was in before the claim
    was_changed_at: str | None
    seen: str | None
    due_at: datetime | None  # when it became due or stale
    claimed_at: datetime
    values: Mapping[str, Any]
    trust: Trust
    # The term of its first claim. It is the same for every attempt, and differs when the row comes back later.
    occasion: int = 0
    outlived: bool = False  # the process that held it before is alive and let the lease expire

    def handler_call(self) -> HandlerCall:
        return HandlerCall("row", self.reconciler, self.key, self.attempt, None, {})

    @property
    def lateness(self) -> timedelta:
        """How long after it became due or stale the row was claimed."""
        return timedelta() if self.due_at is None else max(self.claimed_at - self.due_at, timedelta())

    @property
    def snoozed_for(self) -> timedelta:
        """How long the row has been due: rows do not record when they were first postponed."""
        return self.lateness

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt until an outcome is written, and a different one when the row comes back later.

        Pass it to the services that the handler calls.
        """
        return f"{self.reconciler}:{self.key}:{self.occasion}"
