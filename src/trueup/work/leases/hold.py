"""One holding of a lease, from the first try to take it until it was released or lost. All of it happens in threads.

Two threads look after a lease that is held. One renews it, a third of its time apart (`work/renewing.py` is the shape), and may be
stuck in the network. The other only watches the deadline up to which the lease can be trusted (`Trust`), so that the holder knows
in time. The backend that keeps the lease is the authority; when it cannot be asked, the deadline decides, and it is earlier than the
lease's own end.

A lease that cannot be released (the database is away, the process was killed) ends by itself when its time has passed.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from trueup.clock import elapsed
from trueup.errors import DatabaseUnavailable, LostLease, NotAcquired
from trueup.events import Events, LeaseAcquired, LeaseLost, LeaseNotReleased
from trueup.leases.backend import LeaseBackend
from trueup.leases.lost import LostSignal
from trueup.leases.trust import Trust
from trueup.store.db.connect import RETRYABLE
from trueup.store.db.reasons import advised
from trueup.store.leases import MIN_SILENCE, Terms
from trueup.texts import describe
from trueup.work.renewing import Renewing

RETRY_DELAYS = (1.0, 2.0, 4.0)  # seconds: a database that is away for a moment; "held elsewhere" is not retried
ASK_EVERY = 0.25  # seconds between tries while waiting for a lease
TOUCH_EVERY = 3600.0  # seconds after which the database records that a lease is still held, whichever backend keeps it
JOIN_FOR = 5.0  # seconds for a renewal under way to end before the lease is released


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A wanted lease: for `ttl` at a time, trying for `wait`, and for at most `most` in all."""

    name: str
    ttl: timedelta
    wait: timedelta | None = None
    most: timedelta | None = None


class Lease:
    """A lease that is held, until it is lost or released."""

    def __init__(
        self, request: LeaseRequest, holder: UUID, term: int, fence_name: str, terms: Terms, trust: Trust
    ) -> None:
        self.name = request.name
        self.holder = holder
        self.term = term
        self.lost = LostSignal()
        self._fence_name = fence_name
        self._terms = terms
        self._trust = trust
        self._silence = max(request.ttl, MIN_SILENCE)
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} term={self.term}{'' if self.held() else ' not held'}>"

    def held(self) -> bool:
        """As far as this process knows. Not after it was released, and never in a forked child: the lease is its parent's.

        The deadline is looked at, too: a process that was stopped may get here before the thread that watches it.
        """
        return not self.lost.is_set() and self._trust.left(elapsed()) > 0 and self._process == os.getpid()

    def check(self) -> None:
        """Raise LostLease unless it is still held, as far as this process knows."""
        if not self.held():
            raise LostLease(self.name, self.term)

    async def fence(self, tx: Any) -> None:
        """Inside your transaction: raise LostLease unless this is the newest term. There is no takeover before you commit.

        `tx` is what `enqueue(tx=)` takes: a connection of psycopg or asyncpg, or a session or connection of SQLAlchemy. Raises
        ConfigError when it has no open transaction. The server ends a session that is silent inside the transaction for a minute,
        or for the lease's `ttl` if that is longer: a frozen process does not keep the lease for ever.
        """
        self.check()
        await self._terms.fence(self._fence_name, self.holder, self.term, tx, self._silence)

    def fence_sync(self, tx: Any) -> None:
        """`fence` for plain code: with a psycopg Connection, or what SQLAlchemy or Django has around one."""
        self.check()
        self._terms.fence_sync(self._fence_name, self.holder, self.term, tx, self._silence)


BackendSource = Callable[[], tuple[LeaseBackend, Terms, AbstractContextManager[None]]]
"""What keeps a lease, its terms, and a block in which errors of the database are explained."""


class Hold(Renewing):
    """Used once. `acquire` and `end` block; `abandon` and `when_lost` do not.

    `source` makes the backend and the terms. It is called by `acquire`: it may have to start a server.
    """

    _backend: LeaseBackend
    _terms: Terms
    _trust: Trust

    def __init__(self, request: LeaseRequest, source: BackendSource, events: Events) -> None:
        super().__init__(f"lease {request.name}", events)
        self._request = request
        self._source = source
        self._holder = uuid4()  # of this holding: two in one process are two holders
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._abandoned = False
        self._lease: Lease | None = None
        self._touch_at = elapsed() + TOUCH_EVERY
        self._on_lost: Callable[[], None] | None = None
        self._forget: Callable[[], None] = lambda: None

    def acquire(self) -> Lease:
        """Raises NotAcquired when it is held elsewhere, and DatabaseUnavailable when that could not be found out."""
        self._backend, self._terms, explained = self._source()
        try:
            with explained:
                lease, trust = self._take()
            with self._lock:
                if not self._abandoned:
                    self._lease, self._trust = lease, trust
        except BaseException:
            self._backend.close()
            raise
        if self._lease is None:  # the caller is gone
            self._release(lease)
            raise NotAcquired(self._request.name, "its caller has stopped waiting")
        self._look_after()
        self._events.emit(LeaseAcquired(lease.name, lease.term, str(lease.holder)))
        return lease

    def abandon(self) -> None:
        """The caller of `acquire` has stopped waiting. What was taken, or will be, is released."""
        with self._lock:
            self._abandoned = True
            taken = self._lease is not None
        if taken:
            self._aside(self.end)
        else:
            self._over.set()

    def when_lost(self, call: Callable[[], None]) -> None:
        """Have this called on another thread when the lease is lost, or at once if it is lost already."""
        with self._lock:
            self._on_lost = call
            lost = self._lease is not None and self._lease.lost.is_set()
        if lost:
            call()

    def end(self) -> bool:
        """Release the lease. False when it was lost before."""
        lease = self._lease
        if lease is None or self._process != os.getpid():
            return False
        self._forget()
        held = lease.held()
        self._over.set()
        self._trust.end()  # a caller that kept the Lease object no longer has the lease
        if held:
            if self._thread is not None:
                self._thread.join(JOIN_FOR)
            self._release(lease)
        else:
            self._lose("it could not be renewed in time")
            self._backend.close()
        return held

    # -- taking it ----------------------------------------------------------------------------------------------------

    def _take(self) -> tuple[Lease, Trust]:
        request, backend = self._request, self._backend
        deadline = elapsed() + (request.wait.total_seconds() if request.wait is not None else 0.0)
        while True:
            sent = elapsed()
            refused = NotAcquired(request.name)
            try:
                term = self._try()
            except NotAcquired as error:
                term, refused = None, error
            if term is not None:
                trust = Trust(request.ttl, sent)
                return Lease(request, self._holder, term, backend.fence_name(request.name), self._terms, trust), trust
            left = deadline - elapsed()
            if left <= 0 or self._over.wait(min(ASK_EVERY * random.uniform(0.5, 1), left)):  # noqa: S311
                raise refused

    def _try(self) -> int | None:
        for delay in (*RETRY_DELAYS, None):
            try:
                return self._backend.acquire(self._request.name, self._holder, self._request.ttl)
            except (*RETRYABLE, DatabaseUnavailable) as error:
                if delay is None or self._over.wait(delay):
                    raise DatabaseUnavailable(f"lease {self._request.name!r}: {advised(error)}") from error
        raise AssertionError("unreachable")

    # -- keeping it ---------------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        self._forget = self._terms.at_close(lambda: self._lose("the App was closed"))
        if self._over.is_set():  # abandoned in this very moment
            self._forget()
            return
        self.start(self._backend.renew_every(self._request.ttl))
        self._aside(self._watch)

    def run_once(self) -> float | None:
        lease, sent, every = self._lease, elapsed(), self._backend.renew_every(self._request.ttl)
        assert lease is not None
        try:
            renewed = self._backend.renew(lease.name, lease.holder, lease.term, self._request.ttl)
        except Exception:  # the backend cannot be reached now: it comes back, or the trust runs out
            return every / 10
        if not renewed:
            if not self._over.is_set():  # released while this renewal was under way
                self._lose("its backend says that it has expired or belongs to another holder")
            return None
        self._trust.renewed(sent)
        if elapsed() > self._touch_at:
            self._touch_at = elapsed() + TOUCH_EVERY
            self._aside(lambda: self._touch(lease))
        return every

    def _touch(self, lease: Lease) -> None:
        """Record in PostgreSQL that the lease is held; on a thread of its own, so that renewals do not wait for a slow database."""
        with suppress(Exception):  # it is tried again after an hour, and housekeeping waits for a day
            self._terms.touch(self._backend.fence_name(lease.name), lease.holder, lease.term)

    def _watch(self) -> None:
        most = self._request.most
        until = float("inf") if most is None else elapsed() + most.total_seconds()
        while True:
            left = min(self._trust.left(elapsed()), until - elapsed())
            if self._over.is_set():  # released, perhaps before this thread had its first turn
                return
            if left <= 0:
                overdue = elapsed() >= until
                self._lose("it reached its maximum duration" if overdue else "it could not be renewed in time")
                return
            if self._over.wait(left):
                return

    def _lose(self, reason: str) -> None:
        """Called on any thread; only the first call counts."""
        lease = self._lease
        with self._lock:
            if lease is None or lease.lost.is_set():
                return
            lease.lost.set()
            call = self._on_lost
        self._over.set()
        self._events.emit(LeaseLost(lease.name, lease.term, str(lease.holder), reason))
        if call is not None:
            call()

    def _release(self, lease: Lease) -> None:
        try:
            self._backend.release(lease.name, lease.holder, lease.term)
        except Exception as error:
            self._events.emit(
                LeaseNotReleased(lease.name, lease.term, str(lease.holder), describe(error) or type(error).__name__)
            )
        finally:
            self._backend.close()
