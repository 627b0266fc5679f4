"""Transactions that users hold open: `ctx.transaction()` and `app.transaction()`.

They have connections apart from the pool that trueup's own short statements use. So code that holds a transaction can enqueue,
store progress and read results: with one pool for both, as many holders as it has connections would wait for one another until
all of them fail. A transaction inside a transaction gets an extra connection for the same reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection, Connection

from trueup.store.db.blocking import SyncPool
from trueup.store.db.connect import unaltered
from trueup.store.db.pool import Pool, Waited

_inside: ContextVar[bool] = ContextVar("trueup_inside_a_transaction", default=False)


class Transactions:
    def __init__(
        self, url: str, size: int, connect_timeout: timedelta, *, prepare: str, on_wait: Waited | None = None
    ) -> None:
        self._pool = Pool(url, size, connect_timeout, prepare=prepare, part="transactions", on_wait=on_wait)
        self._sync_pool = SyncPool(url, size, connect_timeout, prepare=prepare, part="transactions", on_wait=on_wait)
        self._after_commit: dict[object, list[Callable[[], None]]] = {}  # by the connection, for each open transaction

    def after_commit(self, tx: object, call: Callable[[], None]) -> bool:
        """Have `call` made once this transaction has been committed, and never when it is rolled back. False when it is not ours."""
        waiting = self._after_commit.get(tx) if isinstance(tx, AsyncConnection | Connection) else None
        if waiting is None:
            return False
        waiting.append(call)
        return True

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection[Any]]:
        use = self._pool.extra if _inside.get() else self._pool.use
        async with use() as connection:
            before = _inside.set(True)
            try:
                with unaltered(connection), self._calling(connection) as end:
                    async with connection.transaction():
                        yield connection
                        end()
            finally:
                _inside.reset(before)

    @contextmanager
    def begin_sync(self) -> Iterator[Connection[Any]]:
        use = self._sync_pool.extra if _inside.get() else self._sync_pool.use
        with use() as connection:
            before = _inside.set(True)
            try:
                with unaltered(connection), self._calling(connection) as end, connection.transaction():
                    yield connection
                    end()
            finally:
                _inside.reset(before)

    @contextmanager
    def _calling(self, connection: object) -> Iterator[Callable[[], None]]:
        """Around a transaction. What it yields is called when its block has come to its end, so that it will be committed."""
        ended: list[bool] = []
        waiting = self._after_commit[connection] = []
        try:
            yield lambda: ended.append(True)
        finally:
            del self._after_commit[connection]
        for call in waiting if ended else ():
            call()

    async def close(self) -> None:
        await self._pool.close()
        self.close_sync()

    def close_sync(self) -> None:
        self._sync_pool.close()
