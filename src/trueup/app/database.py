"""The part of an App that owns the database: it connects, closes, and begins transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from trueup.building import BUILDING
from trueup.clock import Clock, DatabaseClock
from trueup.config import Settings, load_settings
from trueup.config.given import GivenSettings
from trueup.dsn import with_search_path
from trueup.durations import Duration, Rate
from trueup.events import Events
from trueup.jobs.middleware import Middlewares
from trueup.leases.backend import Backend
from trueup.observe.logs import attach_logs
from trueup.options import advised, wrong

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from trueup.embedded.embedded import EmbeddedPostgres
    from trueup.store.store import Store
    from trueup.work.leases.lease import LeaseContext, Leasing


class OnDatabase:
    def __init__(self, database_url: str | None, clock: Clock | None, **settings: Unpack[GivenSettings]) -> None:
        self.settings: Settings = load_settings(overrides={"database_url": database_url, **settings})
        self.events = Events()
        self.logs = attach_logs(self.events)  # call `logs.refresh()` after configuring logging again
        self.middlewares = Middlewares()  # around enqueueing and handlers
        self.clock: Clock = DatabaseClock() if clock is None else _clock(clock)
        self._embedded: EmbeddedPostgres | None = None
        self._store: Store | None = None
        self._close_hooks: list[Callable[[], Awaitable[None]]] = []

    @property
    def store(self) -> Store:
        """The store; the first use starts or joins the embedded PostgreSQL if the App has no other."""
        if self._store is None:
            with BUILDING:
                if self._store is None:
                    self._store = self._build_store()
        return self._store

    def _build_store(self) -> Store:
        with BUILDING:
            from trueup.store.store import Store
        store = Store(self._url(), self.settings, self.events, self.clock, self.middlewares)
        if self._embedded is not None:
            store.migrate()  # only this process maintains the embedded server
        return store

    def _url(self) -> str:
        if self.settings.database_url is not None:
            url = self.settings.database_url.reveal()
        else:
            with BUILDING:
                from trueup.embedded.embedded import EmbeddedPostgres
            self._embedded = EmbeddedPostgres(Path(self.settings.data_dir))
            url = self._embedded.acquire()
        path = self.settings.search_path
        return with_search_path(url, path) if path else url

    async def open(self) -> Store:
        """Connect, without blocking the event loop while the embedded server starts."""
        self.logs.refresh()  # logging may have been configured since the App was made
        store = await asyncio.to_thread(lambda: self.store)
        await store.open()
        return store

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Let `App.close` await `close` before it closes the database's connections.

        For resources that handlers keep open. The last one registered comes first. Each is called every time the App is closed,
        even if another one failed.
        """
        self._close_hooks.append(close)

    async def close(self) -> None:
        """Close the connections, and release the embedded server, which stops after its last user."""
        async with AsyncExitStack() as ends:
            ends.push_async_callback(self._close_store)
            for close in self._close_hooks:
                ends.push_async_callback(close)

    async def _close_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            await store.close()
        self._release()

    def close_sync(self) -> None:
        """`close` for programs without an event loop."""
        store, self._store = self._store, None
        if store is not None:
            store.close_sync()
        self._release()

    def _release(self) -> None:
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.release()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction on a connection of the App's, for your own statements and for `tx=`."""
        store = self._store or await self.open()
        async with store.transactions.begin() as connection:
            yield connection

    async def now(self, tx: Any = None) -> datetime:
        """The database's time, which decides everything. With your transaction as `tx`, the time it began."""
        store = self._store or await self.open()
        async with store.explained(tx):
            return await store.now(tx)

    def now_sync(self, tx: Any = None) -> datetime:
        """`now` for code without an event loop."""
        with self.store.explained(tx):
            return self.store.now_sync(tx)

    async def rate(self, name: str, rate: str | Rate, *, wait: Duration = "1m") -> None:
        """Wait for the fleet's next call under this rate limit: `await app.rate("provider", "1/s")` before each one.

        Raises RateExceeded, with the time until then (`after`), if that would take longer than `wait`, which is an hour at most.
        """
        store = self._store or await self.open()
        async with store.explained():
            await store.rates.wait(name, rate, wait)

    def rate_sync(self, name: str, rate: str | Rate, *, wait: Duration = "1m") -> None:
        """`rate` for code without an event loop."""
        with self.store.explained():
            self.store.rates.wait_sync(name, rate, wait)

    @advised("a lease")
    def lease(
        self,
        name: str,
        *,
        ttl: Duration = "30s",
        wait: Duration | None = None,
        backend: Backend = "postgres",
        key: int | str | None = None,
    ) -> LeaseContext:
        """Exclusive ownership for a limited time: `async with app.lease("nightly") as lease: …`, or `with` in sync code.

        Raises NotAcquired when another process holds it; with `wait`, after waiting that long. `key` is the number of an
        advisory lock, or the key in Redis, that other programs use, too.
        """
        return self._leasing.lease(name, ttl, wait, backend, key)

    lease_sync = lease

    @property
    def _leasing(self) -> Leasing:
        with BUILDING:
            from trueup.work.leases.lease import Leasing
        return Leasing(lambda: self.store, self.settings, self.events)


def _clock(clock: Clock) -> Clock:
    if isinstance(clock, type) or not all(callable(getattr(clock, name, None)) for name in ("now", "elapsed")):
        raise wrong("clock", clock, "an object with now() and elapsed()")
    return clock
