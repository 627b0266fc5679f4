"""Holding a lease: taken on entering, renewed by a thread of its own at a third of its time, given back on leaving.

The holder is told at once when it is lost: `lease.lost` is set, and in async code the body is cancelled and LostLease raised.
The same rule as for jobs: past a local deadline, counted from before the last renewal was sent and shorter than the lease,
it counts as lost, even if whoever keeps it cannot be asked.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection, Connection

from trueup.clock import elapsed
from trueup.dsn import mask
from trueup.errors import DatabaseUnavailable, LostLease, NotAcquired
from trueup.events import Events, LeaseAcquired, LeaseLost
from trueup.leases.backend import LeaseBackend
from trueup.leases.trust import Trust
from trueup.lost import Lost
from trueup.store.connect import RETRYABLE
from trueup.store.leases import Terms

RETRY_DELAYS = (1.0, 2.0, 4.0)  # seconds: a database that is away for a moment; "held elsewhere" is not retried
ASK_EVERY = 0.25  # seconds between tries while waiting for a lease


class Lease:
    """A lease that is held."""

    def __init__(self, name: str, holder: UUID, term: int, fence_name: str, terms: Terms) -> None:
        self.name = name
        self.holder = holder
        self.term = term
        self.lost = Lost()
        self._fence_name = fence_name
        self._terms = terms

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} term={self.term}{' lost' if self.lost.is_set() else ''}>"

    def check(self) -> None:
        """Raise LostLease unless it is still held, as far as this process knows."""
        if self.lost.is_set():
            raise LostLease(self.name, self.term)

    async def fence(self, tx: AsyncConnection[Any]) -> None:
        """Inside your transaction: raise LostLease unless this is the newest term in the database; nobody can take over before you commit."""
        self.check()
        await self._terms.fence(self._fence_name, self.term, tx)

    def fence_sync(self, tx: Connection[Any]) -> None:
        self.check()
        self._terms.fence_sync(self._fence_name, self.term, tx)


class Holding:
    """What `app.lease(…)` gives: `async with` in coroutines, `with` in plain code."""

    def __init__(
        self,
        name: str,
        backend: Callable[[], LeaseBackend],
        terms: Terms,
        events: Events,
        *,
        ttl: timedelta,
        wait: timedelta | None,
    ) -> None:
        self._name = name
        self._make_backend = backend
        self._terms = terms
        self._events = events
        self._ttl = ttl
        self._wait = wait
        self._holder = uuid4()
        self._backend: LeaseBackend | None = None
        self._lease: Lease | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Lease:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        return await asyncio.to_thread(self._acquire)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop = None
        await asyncio.to_thread(self._end)
        self._tell(error)

    def __enter__(self) -> Lease:
        return self._acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._tell(error)

    def _acquire(self) -> Lease:
        backend = self._backend = self._make_backend()
        deadline = None if self._wait is None else elapsed() + self._wait.total_seconds()
        while True:
            sent = elapsed()
            term = self._try(backend)
            if term is not None:
                break
            if deadline is None or elapsed() >= deadline:
                backend.close()
                raise NotAcquired(self._name)
            time.sleep(min(ASK_EVERY * random.uniform(0.5, 1), max(0.0, deadline - elapsed())))  # noqa: S311
        lease = self._lease = Lease(self._name, self._holder, term, backend.fence_name(self._name), self._terms)
        trust = Trust(self._ttl, sent)
        self._thread = threading.Thread(
            target=self._renew, args=(backend, lease, trust), name=f"trueup lease {self._name}", daemon=True
        )
        self._thread.start()
        self._events.emit(LeaseAcquired(self._name, term, str(self._holder)))
        return lease

    def _try(self, backend: LeaseBackend) -> int | None:
        for delay in (*RETRY_DELAYS, None):
            try:
                return backend.acquire(self._name, self._holder, self._ttl)
            except (*RETRYABLE, DatabaseUnavailable) as error:
                if delay is None:
                    backend.close()
                    raise DatabaseUnavailable(f"lease {self._name!r}: {mask(str(error).strip())}") from None
                time.sleep(delay)
        raise AssertionError("unreachable")

    def _renew(self, backend: LeaseBackend, lease: Lease, trust: Trust) -> None:
        third = self._ttl.total_seconds() / 3
        pause = third
        while not self._ended.wait(min(pause, max(0.0, trust.left(elapsed())))):
            if trust.left(elapsed()) <= 0:
                self._lost(lease, "it could not be renewed in time")
                return
            sent = elapsed()
            try:
                if not backend.renew(lease.name, lease.holder, lease.term, self._ttl):
                    self._lost(lease, "somebody else has it")
                    return
            except Exception:  # whatever keeps it cannot be asked just now: the trust runs out, or it comes back
                pause = third / 10
            else:
                trust.renewed(sent)
                pause = third

    def _lost(self, lease: Lease, reason: str) -> None:
        """Called on the renewing thread."""
        self._events.emit(LeaseLost(lease.name, lease.term, str(lease.holder), reason))
        loop = self._loop
        if loop is None or loop.is_closed():
            lease.lost.set()
        else:
            loop.call_soon_threadsafe(self._cancel_body, lease)

    def _cancel_body(self, lease: Lease) -> None:
        lease.lost.set()
        if self._loop is not None and self._task is not None and not self._task.done():
            self._task.cancel()

    def _end(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        lease, backend = self._lease, self._backend
        if backend is not None:
            try:
                if lease is not None and not lease.lost.is_set():
                    backend.release(lease.name, lease.holder, lease.term)
            except Exception as error:  # it expires by itself
                self._events.emit(
                    LeaseLost(
                        self._name,
                        lease.term if lease else 0,
                        str(self._holder),
                        f"not given back: {mask(str(error).strip())}",
                    )
                )
            finally:
                backend.close()

    def _tell(self, error: BaseException | None) -> None:
        """The body's own error goes first; a body that was cancelled because of the loss learns why it was."""
        lease = self._lease
        if lease is None or not lease.lost.is_set():
            return
        if isinstance(error, asyncio.CancelledError) and self._task is not None:
            self._task.uncancel()
        if error is None or isinstance(error, asyncio.CancelledError):
            raise LostLease(lease.name, lease.term) from None
