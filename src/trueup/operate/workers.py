"""Reading the fleet."""

from __future__ import annotations

from copy import copy
from typing import Self

from trueup.jobs.records import WorkerInfo
from trueup.operate.twins import twin
from trueup.store.store import Store


class WorkerOperations:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._views = store.views

    def blocking(self) -> Self:
        same = copy(self)
        same._views = self._store.blocking_views
        return same

    async def list(self) -> tuple[WorkerInfo, ...]:
        """The worker processes that are registered, the oldest first."""
        return tuple(map(WorkerInfo.of, await self._views.workers()))

    list_sync = twin(list)
