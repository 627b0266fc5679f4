"""Queues and kinds that people have paused."""

from __future__ import annotations

from typing import Literal

from trueup.clock import Clock
from trueup.jobs.records import Pause
from trueup.store.db.load import Statements
from trueup.store.jobs import Database

What = Literal["queue", "kind"]


class Pauses:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def pause(self, what: What, name: str, by: str | None, reason: str | None) -> bool:
        """False when it is paused already."""
        params = {"now": self._clock.now(), "what": what, "name": name, "by": by, "reason": reason}
        return bool(await self._database.fetch(self._statements["pauses/pause"], params))

    async def resume(self, what: What, name: str) -> bool:
        """False when it is not paused."""
        params = {"what": what, "name": name, "channel": self._statements.channel}
        return bool(await self._database.fetch(self._statements["pauses/resume"], params))

    async def list(self) -> tuple[Pause, ...]:
        return tuple(Pause(*row) for row in await self._database.fetch(self._statements["pauses/list"], {}))
