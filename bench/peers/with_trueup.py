"""trueup on the stage of `bench.peers`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trueup.operate.watch
import trueup.work.worker  # noqa: F401 - `app.worker` imports these; the clock starts later, and the others are imported by then
from bench.peers.stage import Handle, JobQueue, Producer, perform
from trueup import App


class Jobs(Producer):
    def __init__(self, noop: Any) -> None:
        self._noop = noop

    async def one(self, number: int) -> None:
        await self._noop.enqueue(number)

    async def urgent(self, number: int) -> None:
        await self._noop.using(priority=10).enqueue(number)

    async def many(self, numbers: Iterable[int]) -> None:
        await self._noop.enqueue_many((number,) for number in numbers)


class Trueup(JobQueue):
    async def set_up(self) -> None:
        App(self.url).store.migrate()

    @asynccontextmanager
    async def producer(self, callers: int = 1) -> AsyncIterator[Producer]:
        app, noop = self._app(lambda number: None)
        async with app:
            yield Jobs(noop)

    @asynccontextmanager
    async def worker(self, handle: Handle) -> AsyncIterator[None]:
        app, _ = self._app(handle)
        async with app, app.worker():
            yield

    def _app(self, handle: Handle) -> tuple[App, Any]:
        app = App(self.url, **self.settings)

        @app.job
        async def noop(n: int) -> None:
            handle(n)

        return app, noop


if __name__ == "__main__":
    perform(Trueup)
