"""The base of `Rows` and `Purges`, which work on a user's table: its statements, and the connection that sends them.

A table changes under running workers: a column is dropped, added or retyped, the table is created again. Its fingerprint tells
(`tables.sign`). When a statement is refused, callers check here (`changed_since`) before they blame a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from trueup.clock import Clock
from trueup.store.db.load import Statements
from trueup.store.db.message import Fetched
from trueup.store.db.repository import Database
from trueup.store.fitted import OF_TABLES, Look, PurgeStatements, RowStatements
from trueup.store.rows import tables
from trueup.store.rows.apart import search_time
from trueup.store.rows.compose import steering
from trueup.store.rows.evaluating import Refusal, record
from trueup.store.rows.guard import try_every
from trueup.store.rows.tables import Found

MAX_SEARCHING = timedelta(seconds=4)  # for a statement that looks for a row whose evaluation raises, or takes too long
MAX_PART = timedelta(seconds=1)  # for a part of it

S = TypeVar("S", bound=RowStatements | PurgeStatements)


class OnTable(Generic[S]):
    def __init__(
        self,
        claiming: Database,
        statements: Statements,
        clock: Clock,
        timeout: timedelta,
        found: Found,
        make: Callable[[Found], S],
        look: Look | None,
    ) -> None:
        """`look` looks at the table once more, when it has changed; without it, the table is taken to stay as it is."""
        self.claiming = claiming
        self.statements = statements
        self.clock = clock
        self.steer = steering(statements, timeout)
        self.search_for = search_time(timeout)
        self.steer_search = steering(statements, min(timeout, MAX_SEARCHING))
        self.steer_part = steering(statements, min(timeout, MAX_PART))
        self.made = make(found)  # the statements for the table as it was at its last inspection
        self._make = make
        self._look = look
        self._lock = asyncio.Lock()
        self._timeout = timeout
        # How far the check has come whether rows in quarantine still belong there.
        self.set_aside_until: tuple[datetime | None, str] = (None, "")

    @property
    def found(self) -> Found:
        return self.made.found

    async def changed_since(
        self, made: S, database: Database | None = None, *, refusal: BaseException | None = None
    ) -> bool:
        """Whether the table has changed since these statements were made. If so, new statements are used from now on.

        Raises ConfigError when the table can no longer be worked on. It asks `database`, or else the connection that claims. The
        fingerprint does not tell everything: after some refusals the statements are tried again.
        """
        if self._look is None:
            return False
        database = self.claiming if database is None else database
        async with self._lock:
            if self.made is not made:
                return True
            if await tables.sign(database, self.statements, self.found.spec) == self.found.sign:
                if isinstance(refusal, OF_TABLES):
                    await try_every(database, made.every(), self.found, timeout=self._timeout)
                return False
            self.made = self._make(await self._look())
            return True

    async def _forget(self, query: bytes, window: dict[str, Any], unread: Sequence[str]) -> int:
        after, after_key = self.set_aside_until
        params = {**window, "after": after, "after_key": after_key, "unread": list(unread)}
        ((gone, until, key),) = await self.claiming.fetch_steered(self.steer, query, params)
        self.set_aside_until = (until, key or "")
        return int(gone)

    async def refuse(self, refusals: Sequence[Refusal]) -> set[str]:
        """Record failed attempts of rows that are not claimed, so that they rest or are in quarantine. Returns the recorded keys."""
        return await record(self, refusals)

    async def waiting(self, most: int, *, late_by: timedelta | None = None) -> int:
        """How many rows match now, up to a number; with `late_by` only those due or stale for longer than that."""
        seconds = None if late_by is None else late_by.total_seconds()
        ((count,),) = await self._counted("waiting", {**self.about_window(), "most": most, "late_by": seconds})
        return int(count)

    # -- what the two kinds of statements differ in -------------------------------------------------------------------

    def about_window(self) -> dict[str, Any]:
        """The parameters of statements that look at a window of rows."""
        raise NotImplementedError

    async def _counted(self, name: str, params: dict[str, Any]) -> Fetched:
        """The answer of a statement that only reads. If `where=` raises, it passes over rows that are known to raise."""
        raise NotImplementedError
