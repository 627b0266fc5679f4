"""Calls of one process that enqueue at the same time share a statement and a commit.

A caller that is alone sends its own statement immediately. While MAX_ALONE statements are in flight, later callers wait; when one
of them ends, a single statement stores all waiting jobs. Each caller returns after the commit of its own job and gets its
own error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from trueup.clock import elapsed
from trueup.jobs.job import Draft
from trueup.store.db.connect import is_away, may_pass, refused
from trueup.store.db.pool import Pool

MAX_ALONE = 2  # statements on their way before callers share one
LEVELS = 2  # of halves, until a refusal that may pass is taken to concern all
MAX_JOBS = 500  # in one statement
MAX_BYTES = 4 * 1024 * 1024  # of arguments in one statement, unless a single job has more

Store = Callable[[Sequence[Draft], AsyncConnection[Any]], Awaitable[Sequence[int]]]


@dataclass(slots=True)
class _Waiting:
    draft: Draft
    stored: asyncio.Future[int]
    since: float


class Coalescing:
    """`store` stores drafts in one commit and returns their ids in the same order."""

    def __init__(self, pool: Pool, store: Store) -> None:
        self._pool = pool
        self._store = store
        self._traffic: _Traffic | None = None

    async def one(self, draft: Draft) -> int:
        loop = asyncio.get_running_loop()
        traffic = self._traffic
        if traffic is None or traffic.loop is not loop:  # a second asyncio.run() begins anew, as the pool does
            traffic = self._traffic = _Traffic(loop, self._pool, self._store)
        return await traffic.one(draft)


class _Traffic:
    """The statements in flight of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool, store: Store) -> None:
        self.loop = loop
        self._pool = pool
        self._store = store
        self._under_way = 0
        self._waiting: deque[_Waiting] = deque()
        self._senders: set[asyncio.Task[None]] = set()

    async def one(self, draft: Draft) -> int:
        if self._under_way >= MAX_ALONE:
            waiting = _Waiting(draft, self.loop.create_future(), elapsed())
            self._waiting.append(waiting)
            return await waiting.stored
        self._under_way += 1
        try:
            async with self._pool.use() as connection:
                return (await self._store([draft], connection))[0]
        finally:
            self._ended()

    def _ended(self) -> None:
        """A statement has ended: the jobs gathered meanwhile go next, in a task that no caller's cancellation ends."""
        self._under_way -= 1
        while self._waiting and self._waiting[0].stored.done():
            self._waiting.popleft()  # cancelled
        if self._waiting and not self.loop.is_closed():
            self._under_way += 1
            sender = self.loop.create_task(self._send_waiting())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def _send_waiting(self) -> None:
        batch: list[_Waiting] = []
        try:
            async with self._pool.use(since=self._waiting[0].since) as connection:
                batch = self._take()
                if batch:
                    await self._send(batch, connection)
        except BaseException as error:
            for waiting in batch or self._overdue():
                _fail(waiting, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._ended()

    async def _send(self, batch: Sequence[_Waiting], connection: AsyncConnection[Any]) -> None:
        error = await self._sent(batch, connection)
        if error is not None:
            await self._divide(batch, error, connection)

    async def _sent(self, batch: Sequence[_Waiting], connection: AsyncConnection[Any]) -> Exception | None:
        """Store them in one statement, or return what PostgreSQL says when it refuses it. Raises when it says nothing."""
        try:
            ids = await self._store([each.draft for each in batch], connection)
        except Exception as error:
            if not refused(error):
                raise
            return error
        for waiting, job_id in zip(batch, ids, strict=True):
            _done(waiting, job_id)
        return None

    async def _divide(self, batch: Sequence[_Waiting], error: Exception, connection: AsyncConnection[Any]) -> None:
        """Some of them may be what is refused, and only their callers must get the error: of what is refused, the halves are sent.

        What may pass, such as a timeout or a full disk, is taken to concern all that are left when nothing more is stored.
        """
        left, level = [(batch, error)], 0
        while left:
            level += 1
            halves: list[Sequence[_Waiting]] = []
            for part, each in left:
                if len(part) == 1:
                    _fail(part[0], each)
                else:
                    halves += (part[: len(part) // 2], part[len(part) // 2 :])
            sent = [(half, await self._sent(half, connection)) for half in halves]
            left = [(half, each) for half, each in sent if each is not None]
            if len(left) == len(sent) and level >= LEVELS and all(may_pass(each) or is_away(each) for _, each in left):
                for part, each in left:
                    for waiting in part:
                        _fail(waiting, each)
                return

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < MAX_JOBS:
            draft = self._waiting[0].draft
            size += len(draft.args) + len(draft.meta or "")
            if batch and size > MAX_BYTES:
                break
            waiting = self._waiting.popleft()
            if not waiting.stored.done():
                batch.append(waiting)
        return batch

    def _overdue(self) -> list[_Waiting]:
        """The callers that have waited long enough for a connection: the first, and those soon after it. The others keep waiting."""
        overdue: list[_Waiting] = []
        while self._waiting and (not overdue or self._pool.overdue(self._waiting[0].since)):
            overdue.append(self._waiting.popleft())
        return overdue


def _done(waiting: _Waiting, job_id: int) -> None:
    if not waiting.stored.done():
        waiting.stored.set_result(job_id)


def _fail(waiting: _Waiting, error: BaseException) -> None:
    if waiting.stored.done():
        return
    if isinstance(error, asyncio.CancelledError):
        waiting.stored.cancel()
    else:
        waiting.stored.set_exception(error)
