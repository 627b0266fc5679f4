"""Open alerts, kept in the database so that another worker can continue where this one stopped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from trueup.clock import Clock
from trueup.store.db.load import Statements
from trueup.store.health import Lead
from trueup.store.jobs import Database

State = Literal["noticed", "raised", "sent", "resolved"]


@dataclass(frozen=True, slots=True)
class Alert:
    """A check that fails. It is logged from `raised` on; `sent` means that the webhook took it."""

    check: str
    state: State
    severity: str
    problem: str
    lasted_s: float
    since: datetime


class AlertStates:
    """Every write is fenced by the lease of the worker that watches; False means that the lease is lost."""

    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def list(self) -> dict[str, Alert]:
        rows = await self._database.fetch(self._statements["alerts/list"], {"now": self._clock.now()})
        return {row[0]: Alert(*row) for row in rows}

    async def write(self, lead: Lead, check: str, state: State, severity: str, problem: str) -> bool:
        facts = {"name": check, "state": state, "severity": severity, "problem": problem, "now": self._clock.now()}
        return bool(await self._database.fetch(self._statements["alerts/write"], {**facts, **lead.fence}))

    async def forget(self, lead: Lead, check: str) -> bool:
        return bool(await self._database.fetch(self._statements["alerts/forget"], {"name": check, **lead.fence}))
