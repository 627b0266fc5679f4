"""Reading the fleet."""

from __future__ import annotations

from trueup.jobs.records import WorkerInfo
from trueup.operate.operating import Operating, twin
from trueup.store.store import Store


class WorkerOperations(Operating):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._views = store.views

    async def list(self) -> tuple[WorkerInfo, ...]:
        """The worker processes that are registered, the oldest first."""
        return tuple(map(WorkerInfo.of, await self._views.workers()))

    list_sync = twin(list)
