"""Housekeeping of the history: creates partitions for the coming days and drops expired ones, instead of deleting single rows."""

from __future__ import annotations

from datetime import timedelta

from trueup.events import Events, HistoryDayCreated, HistoryDayDropped, ServiceFailed
from trueup.store.history import AHEAD, History, Kept, Pruned
from trueup.work.service import Service, jittered


class Pruner(Service):
    name = "pruner"

    def __init__(self, history: History, events: Events, kept: Kept, every: timedelta) -> None:
        super().__init__(events)
        self._history = history
        self._kept = kept
        self._every = every.total_seconds()
        self._refused: str | None = None

    async def run_once(self) -> float:
        await self.prune()
        return jittered(self._every)

    async def prune(self, ahead: int = AHEAD) -> Pruned:
        """One pass; creates the partitions of the next `ahead` days."""
        return self._tell(await self._history.prune(self._kept, ahead))

    async def make_ready(self) -> Pruned:
        """Make today's days, before anything is written to them."""
        return self._tell(await self._history.make_ready())

    def _tell(self, pruned: Pruned) -> Pruned:
        for partition in pruned.created:
            self.events.emit(HistoryDayCreated(partition))
        for partition in pruned.dropped:
            self.events.emit(HistoryDayDropped(partition))
        if pruned.refused is not None and pruned.refused != self._refused:  # said once
            advice = "the history's daily partitions are neither created nor dropped; run a worker as the owner of the schema"
            self.events.emit(ServiceFailed(self.name, "InsufficientPrivilege", f"{pruned.refused}: {advice}"))
        self._refused = pruned.refused
        return pruned
