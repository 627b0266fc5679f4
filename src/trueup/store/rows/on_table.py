"""What works on one table of a user's: its statements for the table as it is, and how they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from trueup.clock import Clock
from trueup.store.db.load import Statements
from trueup.store.db.repository import Database
from trueup.store.fitted import Fit, PurgeStatements, RowStatements
from trueup.store.rows.apart import search_time
from trueup.store.rows.compose import steering
from trueup.store.rows.tables import Found

S = TypeVar("S", bound=RowStatements | PurgeStatements)


class OnTable(Generic[S]):
    def __init__(
        self, claiming: Database, statements: Statements, clock: Clock, timeout: timedelta, fit: Fit[S]
    ) -> None:
        self.claiming = claiming
        self.statements = statements
        self.clock = clock
        self.steer = steering(statements, timeout)
        self.search_for = search_time(timeout)
        self._fit = fit
        # How far rows in quarantine have been looked at, to see whether they still belong there.
        self.set_aside_until: tuple[datetime | None, str] = (None, "")

    @property
    def made(self) -> S:
        """The statements for the table as it was when it was last looked at."""
        return self._fit.made

    @property
    def found(self) -> Found:
        return self.made.found

    async def changed_since(self, made: S, database: Database | None = None) -> bool:
        """Whether the table is not what it was when these were made; then those for the table as it is now are used from here on.

        Raises ConfigError when it cannot be worked on any more. `database`: where to ask, other than where rows are claimed.
        """
        return await self._fit.anew(made, self.claiming if database is None else database, self.statements)

    async def _forget(self, query: bytes, window: dict[str, Any], unread: Sequence[str]) -> int:
        after, after_key = self.set_aside_until
        params = {**window, "after": after, "after_key": after_key, "unread": list(unread)}
        ((gone, until, key),) = await self.claiming.fetch_steered(self.steer, query, params)
        self.set_aside_until = (until, key or "")
        return int(gone)
