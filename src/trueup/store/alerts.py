"""Open alerts, kept in the database so that another worker can continue where this one stopped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from trueup.store.db.repository import Repository
from trueup.store.health import Lead

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


class AlertStates(Repository):
    """Every write is fenced by the lease of the worker that watches; False means that the lease is lost."""

    async def list(self) -> dict[str, Alert]:
        return {row[0]: Alert(*row) for row in await self._fetch("alerts/list")}

    async def write(self, lead: Lead, check: str, state: State, severity: str, problem: str) -> bool:
        facts = {"name": check, "state": state, "severity": severity, "problem": problem}
        return bool(await self._fetch("alerts/write", **facts, **lead.fence))

    async def forget(self, lead: Lead, check: str) -> bool:
        return bool(await self._fetch("alerts/forget", name=check, **lead.fence))
