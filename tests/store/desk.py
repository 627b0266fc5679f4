"""What store tests do over and over: put a job, register a worker, claim, look at a row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from trueup.jobs.failure import Failure
from trueup.jobs.job import ClaimedJob, Draft
from trueup.store.store import Store
from trueup.store.workers import Identity

LEASE = timedelta(seconds=30)


def draft(kind: str = "send", **fields: Any) -> Draft:
    queue = fields.pop("queue", "default")
    return Draft(**{"kind": kind, "queue": queue, "lane": queue, "args": "{}", "max_attempts": 3, **fields})


def failure(message: str = "boom", attempt: int = 1) -> Failure:
    return Failure(attempt, "ValueError", message, "")


class Desk:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def put(self, kind: str = "send", **fields: Any) -> int:
        return (await self.store.enqueue.one(draft(kind, **fields))).job_id

    async def put_many(self, count: int, kind: str = "send", **fields: Any) -> None:
        """Any number of equal jobs."""
        template = draft(kind, **fields)
        await self.store.enqueue.many(template, iter([template] * count))

    async def worker(self, lease_for: timedelta = LEASE, host: str = "host", pid: int = 1) -> UUID:
        """A registered worker's holder id."""
        identity = Identity(uuid4(), host, pid, None, ("default",), 10)
        await self.store.workers.register(identity, lease_for)
        return identity.holder

    async def claim(
        self, holder: UUID, most: int = 10, *, lane: str = "default", kinds: Sequence[str] = ("send",)
    ) -> list[ClaimedJob]:
        return await self.store.jobs.claim(holder, lane, most, kinds)

    async def running(self, holder: UUID | None = None, **fields: Any) -> ClaimedJob:
        """A job that this holder, or a new one, has claimed."""
        job_id = await self.put(**fields)
        (job,) = await self.claim(holder or await self.worker())
        assert job.id == job_id
        return job

    async def dead(self, **fields: Any) -> int:
        job = await self.running(**fields)
        assert await self.store.jobs.bury(job.holder, [job], ["out of attempts"], [failure()]) == {job.id}
        return job.id

    async def row(self, job_id: int) -> dict[str, Any]:
        """Everything about a job, live or ended."""
        row = await self.store.views.job(job_id)
        assert row is not None, f"job {job_id} is nowhere"
        return row

    async def state(self, job_id: int) -> str:
        return str((await self.row(job_id))["state"])

    async def scalar(self, query: str, *params: object) -> Any:
        """The first column of the first row of any statement; None without a row."""
        async with self.store.pool.use() as connection:
            cursor = await connection.execute(query.encode(), params)
            row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    async def holders(self) -> set[UUID]:
        """Those who have a row in `workers`."""
        return {row["holder"] for row in await self.store.views.workers()}
