"""The values of the checks, from the function behind the view `health`, so that both always agree; and the alerts about them, kept
in the database so that another worker can continue where this one stopped."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import psycopg
from psycopg import errors

from trueup.errors import DatabaseUnavailable
from trueup.store.db.load import Statements
from trueup.store.db.migrate import Refusal, all_steps, refusal
from trueup.store.db.repository import Database, Repository
from trueup.store.leases import label


@dataclass(frozen=True, slots=True)
class Measured:
    """One check: its value and its threshold. Ages are in seconds, everything else is a count."""

    name: str
    severity: str  # "error" or "warning"
    value: float
    allowed: float
    detail: str


class Health(Repository):
    async def refusal(self) -> Refusal | None:
        """Why this release cannot work with the schema as it is, and what to do; None when it can."""
        try:
            rows = await self._fetch("migrations/applied")
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            rows = []
        return refusal(self._statements.schema, all_steps(), {(number, step) for number, step in rows})

    async def measured(self) -> list[Measured]:
        return [Measured(*row) for row in await self._fetch("health/checks")]


class Lead(Repository):
    """A lease of one process of the fleet: one statement acquires and renews it, another releases it."""

    def __init__(self, database: Database, statements: Statements, name: str, holder: UUID, seconds: float) -> None:
        super().__init__(database, statements)
        self._of = {"name": name, "holder": holder}
        self._seconds = seconds
        self._term: int | None = None

    async def take(self) -> bool:
        """Acquire or renew the lease. Returns whether this process holds it."""
        rows = await self._fetch("leases/acquire", label=label(), ttl=self._seconds, **self._of)
        self._term = int(rows[0][0]) if rows else None
        return self._term is not None

    @property
    def fence(self) -> dict[str, object]:
        """The parameters that fence a statement by this lease; they match nothing after it was released or refused."""
        return {"lease": self._of["name"], "holder": self._of["holder"], "term": self._term}

    async def leave(self) -> None:
        """Release the lease if this process holds it. If the database is unreachable, it expires."""
        term, self._term = self._term, None
        if term is not None:
            with suppress(psycopg.Error, OSError, DatabaseUnavailable):
                await self._fetch("leases/release", **self._of, term=term)


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
