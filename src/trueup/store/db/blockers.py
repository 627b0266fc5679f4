"""Which sessions block a migration, and for how long. Their statements are not shown: they contain data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import Connection

from trueup.durations import format_duration
from trueup.store.db.load import Statements


@dataclass(frozen=True, slots=True)
class Blocker:
    """A session that has tables of the schema locked. The ages are None when this role may not see them."""

    pid: int | None
    application: str
    kind: str
    transaction_age_s: float | None
    query_age_s: float | None
    tables: str

    def __str__(self) -> str:
        if self.pid is None:
            return f"a prepared transaction (see pg_prepared_xacts) has locked {self.tables}"
        who = f"pid {self.pid} ({self.application or self.kind})"
        if self.transaction_age_s is None or self.query_age_s is None:
            return f"{who} has locked {self.tables}"
        return (
            f"{who} has locked {self.tables}: its transaction is {_age(self.transaction_age_s)} old, "
            f"its latest query {_age(self.query_age_s)}"
        )


def blockers(connection: Connection[Any], statements: Statements, longer_than: timedelta) -> list[Blocker]:
    """The sessions that have held a lock for longer than this."""
    params = {"schema": statements.schema, "longer_than": longer_than.total_seconds()}
    return [Blocker(*row) for row in connection.execute(statements["migrations/blockers"], params)]


def _age(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(max(seconds, 0.0), 1 if seconds < 10 else 0)))
