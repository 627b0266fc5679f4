"""Procrastinate on the stage of `bench.peers`. Run by the Python of its own environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.peers.stage import Handle, JobQueue, Producer, perform


class Jobs(Producer):
    def __init__(self, noop: Any, batch: int) -> None:
        self._noop = noop
        self._batch = batch

    async def one(self, number: int) -> None:
        await self._noop.defer_async(n=number)

    async def urgent(self, number: int) -> None:
        await self._noop.configure(priority=10).defer_async(n=number)

    async def many(self, numbers: Iterable[int]) -> None:
        every = [{"n": number} for number in numbers]
        for start in range(0, len(every), self._batch):
            await self._noop.batch_defer_async(*every[start : start + self._batch])


class Procrastinate(JobQueue):
    async def set_up(self) -> None:
        app, _ = self._app(lambda number: None)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def producer(self, callers: int = 1) -> AsyncIterator[Producer]:
        app, noop = self._app(lambda number: None)
        async with app.open_async():
            yield Jobs(noop, self.settings["enqueue_batch"])

    @asynccontextmanager
    async def worker(self, handle: Handle) -> AsyncIterator[None]:
        app, _ = self._app(handle)
        async with app.open_async(), asyncio.TaskGroup() as running:  # one that fails ends the process, with its reason
            worker = app.run_worker_async(concurrency=self.settings["concurrency"], install_signal_handlers=False)
            task = running.create_task(worker)
            yield
            task.cancel()

    def _app(self, handle: Handle) -> tuple[App, Any]:
        app = App(connector=PsycopgConnector(conninfo=self.url, max_size=self.settings["pool"]))

        @app.task(name="noop")
        async def noop(n: int) -> None:
            handle(n)

        return app, noop


if __name__ == "__main__":
    perform(Procrastinate)
