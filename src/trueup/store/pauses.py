"""Queues and kinds that people have paused."""

from __future__ import annotations

from typing import Literal

from trueup.jobs.records import Pause
from trueup.store.db.repository import Repository

What = Literal["queue", "kind"]


class Pauses(Repository):
    async def pause(self, what: What, name: str, by: str | None, reason: str | None) -> bool:
        """Pause it. False when it is paused already."""
        return bool(await self._fetch("pauses/pause", what=what, name=name, by=by, reason=reason))

    async def resume(self, what: What, name: str) -> bool:
        """End its pause. False when it is not paused."""
        return bool(await self._fetch("pauses/resume", what=what, name=name))

    async def list(self) -> tuple[Pause, ...]:
        return tuple(Pause(*row) for row in await self._fetch("pauses/list"))
