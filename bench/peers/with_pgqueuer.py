"""PgQueuer on the stage of `bench.peers`. Run by the Python of its own environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.stage import Handle, JobQueue, Producer, perform


class Jobs(Producer):
    def __init__(self, queries: Queries, batch: int) -> None:
        self._queries = queries
        self._batch = batch

    async def one(self, number: int) -> None:
        await self._queries.enqueue("noop", str(number).encode())

    async def urgent(self, number: int) -> None:
        await self._queries.enqueue("noop", str(number).encode(), 10)

    async def many(self, numbers: Iterable[int]) -> None:
        payloads: list[bytes | None] = [str(number).encode() for number in numbers]
        for start in range(0, len(payloads), self._batch):
            batch = payloads[start : start + self._batch]
            await self._queries.enqueue(["noop"] * len(batch), batch, [0] * len(batch))


class PgQueuerQueue(JobQueue):
    async def set_up(self) -> None:
        async with self._connection() as connection:
            await Queries(AsyncpgDriver(connection)).install()

    @asynccontextmanager
    async def producer(self, callers: int = 1) -> AsyncIterator[Producer]:
        if callers > 1:
            async with asyncpg.create_pool(
                self.url, min_size=self.settings["pool"], max_size=self.settings["pool"]
            ) as pool:
                yield Jobs(Queries(AsyncpgPoolDriver(pool)), self.settings["enqueue_batch"])
            return
        async with self._connection() as connection:
            yield Jobs(Queries(AsyncpgDriver(connection)), self.settings["enqueue_batch"])

    @asynccontextmanager
    async def worker(self, handle: Handle) -> AsyncIterator[None]:
        async with self._connection() as connection:
            queue = PgQueuer.from_asyncpg_connection(connection)

            @queue.entrypoint("noop")
            async def noop(job: Job) -> None:
                handle(int(job.payload or b""))

            async with asyncio.TaskGroup() as running:  # one that fails ends the process, with its reason
                running.create_task(queue.run(batch_size=self.settings["batch_size"]))
                yield
                queue.shutdown.set()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()


if __name__ == "__main__":
    perform(PgQueuerQueue)
