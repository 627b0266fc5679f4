"""What the checks measure, read where it is stored: by the function behind the view `health`, so that both always agree."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors

from trueup.clock import Clock
from trueup.store.db.load import Statements
from trueup.store.db.migrate import all_steps, refusal
from trueup.store.jobs import Database


@dataclass(frozen=True, slots=True)
class Measured:
    """One check: what it found, and how much of it is allowed. Ages are in seconds, everything else is a count."""

    name: str
    severity: str  # "error" or "warning"
    value: float
    allowed: float
    detail: str


class Health:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def refusal(self) -> str | None:
        """Why this release cannot work with the schema as it is, and what to do; None when it can."""
        try:
            rows = await self._database.fetch(self._statements["migrations/applied"])
        except (errors.UndefinedTable, errors.InvalidSchemaName):
            rows = []
        return refusal(self._statements.schema, all_steps(), {(number, step) for number, step in rows})

    async def measured(self) -> list[Measured]:
        rows = await self._database.fetch(self._statements["health/checks"], {"now": self._clock.now()})
        return [Measured(*row) for row in rows]
