"""What `app.lease` gives, and how it is held: taken on entering, renewed in the background, released on leaving.

The holder learns at once when it is lost: `lease.lost` is set, and in async code the body is cancelled; leaving raises
LostLease, unless the body has raised an error of its own or was cancelled from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast, get_args

from trueup.aside import aside
from trueup.building import imported
from trueup.config import Settings, redis_urls
from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError, LostLease
from trueup.events import Events
from trueup.jobs.names import checked_name
from trueup.leases.backend import Backend, LeaseBackend
from trueup.leases.trust import MIN_LEASE
from trueup.store.explained import Explained
from trueup.store.leases import AdvisoryLeases, RowLeases, Terms
from trueup.store.store import Store
from trueup.work.leases.hold import BackendSource, Hold, Lease, LeaseRequest

MAX_KEY = 2**63  # of an advisory lock


class LeaseContext:
    """What `app.lease(…)` gives: `async with` in coroutines, `with` in plain code. May be entered again after it was left."""

    def __init__(self, request: LeaseRequest, source: BackendSource, events: Events) -> None:
        self._request = request
        self._source = source
        self._events = events
        self._hold: Hold | None = None
        self._lease: Lease | None = None
        self._body: Body | None = None

    async def __aenter__(self) -> Lease:
        hold = self._begin()
        try:
            lease = self._lease = await aside(hold.acquire, f"trueup lease {self._request.name}")
        except asyncio.CancelledError:
            self._hold = None
            hold.abandon()
            raise
        except BaseException:
            self._hold = None
            raise
        self._body = Body()
        hold.when_lost(self._body.cancel)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold, body = self._hold, self._body
        assert hold is not None
        assert body is not None
        cancelled_by_us = body.end(error)
        self._hold = self._body = None
        held = await aside(hold.end, f"trueup lease {self._request.name}")
        if not held and (error is None or cancelled_by_us):
            raise self._lost() from None

    def __enter__(self) -> Lease:
        hold = self._begin()
        try:
            lease = self._lease = hold.acquire()
        except BaseException:
            self._hold = None
            raise
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold, self._hold = self._hold, None
        assert hold is not None
        if not hold.end() and error is None:
            raise self._lost()

    def _begin(self) -> Hold:
        if self._hold is not None:
            raise RuntimeError(
                f"lease {self._request.name!r} is already held by this object; call app.lease() again for another one"
            )
        self._hold = Hold(self._request, self._source, self._events)
        return self._hold

    def _lost(self) -> LostLease:
        assert self._lease is not None
        return LostLease(self._lease.name, self._lease.term)


class Body:
    """The task inside the block. It is cancelled as `asyncio.timeout` does it, so that a cancellation from outside stays one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._cancelled = False

    def cancel(self) -> None:
        """Called on any thread."""
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: nothing runs there any more
            return

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._cancelled = True
            self._task.cancel()

    def end(self, error: BaseException | None) -> bool:
        """From here on nothing is cancelled. Returns whether the error is only the cancellation caused by the loss of the lease."""
        task, self._task = self._task, None
        if task is None or not self._cancelled:
            return False
        return task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)


@dataclass(frozen=True)
class Leasing:
    """Makes the leases that an App gives out: checks what is asked for, and finds the backend that keeps it."""

    store: Callable[[], Store]  # called when a lease is acquired, not before
    settings: Settings
    events: Events

    def lease(
        self, name: str, ttl: Duration, wait: Duration | None, backend: Backend, key: int | str | None
    ) -> LeaseContext:
        """Raises ConfigError that names the option which is wrong."""
        length = duration_of(f"lease {name!r}: ttl", ttl)
        if length < MIN_LEASE:
            raise ConfigError(f"lease {name!r}: ttl={ttl!r} is too short; the minimum is one second")
        checked_name("lease", name)
        if backend == "postgres" and name.startswith(("advisory:", "redis:")):
            raise ConfigError(f"lease {name!r}: this prefix is for the terms of leases in other backends")
        if backend not in get_args(Backend):
            raise ConfigError(f"lease {name!r}: backend={backend!r}: {', '.join(map(repr, get_args(Backend)))}")
        check_key(f"lease {name!r}: key=", backend, key)
        return self.holding(
            LeaseRequest(name, length, None if wait is None else duration_of(f"lease {name!r}: wait", wait)),
            backend,
            key,
        )

    def holding(self, request: LeaseRequest, backend: Backend, key: int | str | None) -> LeaseContext:
        return LeaseContext(request, lambda: self._source(backend, key), self.events)

    def _source(self, backend: Backend, key: int | str | None) -> tuple[LeaseBackend, Terms, Explained]:
        store = self.store()
        return self.backend(backend, key), store.terms, store.explained()

    def backend(self, backend: Backend, key: int | str | None) -> LeaseBackend:
        """The backend that keeps leases of this kind."""
        store, settings = self.store(), self.settings
        match backend:
            case "postgres":
                return RowLeases(store.terms)
            case "advisory":
                return AdvisoryLeases(store.terms, store.statements, cast(int | None, key))
            case "redis":
                if settings.redis_url is None:
                    raise ConfigError("backend='redis': no Redis is configured; set redis_url= or TRUEUP_REDIS_URL")
                redis: Any = imported("trueup.integrations.redis")
                urls = redis_urls(settings.redis_url)
                made = redis.leases(urls, store.terms, settings.schema, settings.redis_unavailable, key, self.events)
                return cast(LeaseBackend, made)


def check_key(what: str, backend: Backend, key: int | str | None) -> None:
    """Raises ConfigError for a key that does not suit this backend."""
    if key is None:
        return
    if backend == "advisory" and isinstance(key, int) and not isinstance(key, bool) and -MAX_KEY <= key < MAX_KEY:
        return
    if backend == "redis" and isinstance(key, str):
        checked_name(what.removesuffix("="), key)
        return
    raise ConfigError(f"{what}{key!r}: an advisory lease needs a number of up to 64 bits, a lease in Redis a text")
