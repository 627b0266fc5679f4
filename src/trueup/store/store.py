"""Everything trueup keeps in PostgreSQL, behind one object: the pool, and the nouns on top of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from psycopg import Connection

from trueup.clock import Clock
from trueup.config import Settings
from trueup.events import ConnectionAwaited, Events
from trueup.jobs.middleware import Middlewares
from trueup.store.actions import Actions
from trueup.store.db import loaders
from trueup.store.db.blocking import BlockingDatabase, SyncPool
from trueup.store.db.callers import connection_of, connection_of_sync
from trueup.store.db.confirmed import ConfirmedConnection
from trueup.store.db.connect import connecting, connection_settings, make_ready_sync
from trueup.store.db.listen import NotifyConnection
from trueup.store.db.load import Statements
from trueup.store.db.migrate import WAIT, Migrator, Step
from trueup.store.db.own_connection import OwnConnection
from trueup.store.db.pool import HandlerConnections, Pool
from trueup.store.db.steps import Ask, Steps, drive, drive_sync
from trueup.store.db.thread_connection import ThreadConnection
from trueup.store.db.transactions import Transactions
from trueup.store.declarations import Declarations
from trueup.store.enqueue import Enqueue
from trueup.store.explained import Explained
from trueup.store.history import History
from trueup.store.jobs import Jobs
from trueup.store.lanes import Lanes
from trueup.store.leases import Terms
from trueup.store.pauses import Pauses
from trueup.store.rates import Rates
from trueup.store.schedules import Schedules
from trueup.store.views import Views
from trueup.store.workers import Workers


class Store:
    def __init__(self, url: str, settings: Settings, events: Events, clock: Clock, middlewares: Middlewares) -> None:
        self.url = url
        self.events = events
        self.middlewares = middlewares  # for everything that calls handlers on this store
        self.clock = clock
        self.connect_timeout = settings.connect_timeout
        self.statement_timeout = settings.statement_timeout
        self.prepare = settings.prepare
        self.statements = Statements(settings.schema, clock=clock, aging=settings.aging, notify=settings.notify)
        place = url, settings.pool_size, settings.connect_timeout
        shared: dict[str, Any] = {"prepare": settings.prepare, "on_wait": self._waited}
        ours = {**shared, "context": loaders.context_of_ours(), "wait": settings.pool_timeout}
        self.pool, self.sync_pool = Pool(*place, **ours), SyncPool(*place, **ours)
        self.transactions = Transactions(*place, **shared)
        self.jobs = Jobs(self.pool, self.statements)
        self.workers = Workers(self.pool, self.statements)
        self.lanes = Lanes(self.pool, self.statements)
        self.history = History(self.pool, self.statements)
        self.schedules = Schedules(self.pool, self.statements)
        self.declarations = Declarations(self.pool, self.statements, settings.retire_after)
        self.terms = Terms(self.connect_sync, self.statements, settings.statement_timeout)
        self.views = Views(self.pool, self.statements)
        self.blocking = BlockingDatabase(self.sync_pool)  # for operations of callers without an event loop
        self.pauses = Pauses(self.pool, self.statements)
        self.actions = Actions(self.pool, self.statements)
        self.rates = Rates(self.statements, self.pool, self.sync_pool)
        self.enqueue = Enqueue(self.statements, self.pool, self.sync_pool)

    def explained(self, tx: Any = None) -> Explained:
        """A block in which errors of the driver become trueup's own where these say more."""
        return Explained(self, tx)

    def _waited(self, seconds: float, got: bool) -> None:
        self.events.emit(ConnectionAwaited(round(seconds * 1000, 3), got))

    async def open(self) -> None:
        """Connect. Raises DatabaseUnavailable, with the address and without the password, when that fails."""
        await self.pool.open()

    async def close(self) -> None:
        await self.pool.close()
        await self.transactions.close()
        self.sync_pool.close()
        self.terms.close()

    def close_sync(self) -> None:
        self.sync_pool.close()
        self.transactions.close_sync()
        self.terms.close()

    async def now(self, tx: Any = None) -> datetime:
        """The database's time; inside a transaction, the moment it began."""
        if tx is not None:
            return await drive(self._now(), await connection_of(tx))
        async with self.pool.use() as connection:
            return await drive(self._now(), connection)

    def now_sync(self, tx: Any = None) -> datetime:
        if tx is not None:
            return drive_sync(self._now(), connection_of_sync(tx))
        with self.sync_pool.use() as connection:
            return drive_sync(self._now(), connection)

    def _now(self) -> Steps[datetime]:
        rows = yield Ask(self.statements["session/now"], {"now": self.clock.now()})
        return cast(datetime, rows[0][0])

    def own_connection(
        self,
        part: str,
        *,
        keep: bool = False,
        lock_timeout: timedelta | None = None,
        server_timeout: timedelta | None = None,
        for_rows: bool = False,
    ) -> OwnConnection:
        """A connection of its own for a part of the worker, `for_rows` for reading users' rows. With `keep`, the server keeps its
        statements where it can."""
        return OwnConnection(
            self.url,
            part,
            self.events,
            self.connect_timeout,
            self.statement_timeout,
            prepare=self.prepare if keep else "false",
            context=loaders.context() if for_rows else loaders.context_of_ours(),
            lock_timeout=lock_timeout,
            server_timeout=server_timeout,
            for_rows=for_rows,
        )

    def connections_for_rows(self) -> HandlerConnections:
        """Connections for transactions of reconcilers' handlers, as many as run at a time."""
        return HandlerConnections(self.url, self.connect_timeout, prepare=self.prepare, context=loaders.context())

    def notify_connection(self) -> NotifyConnection:
        return NotifyConnection(self.url, self.statements, self.connect_timeout)

    def thread_connection(self, part: str, timeout: timedelta, *, for_rows: bool = False) -> ThreadConnection:
        """A connection of its own for a thread; `for_rows`: for writing to users' rows."""
        return ThreadConnection(self.connect_sync, part, timeout.total_seconds(), for_rows=for_rows)

    def connect_sync(self, part: str) -> Connection[Any]:
        with connecting(self.url):
            settings = connection_settings(self.url, part, self.connect_timeout)
            connection = ConfirmedConnection.connect(**settings, context=loaders.context_of_ours())
            try:
                make_ready_sync(connection, "false", ours=True)
            except BaseException:
                connection.close()
                raise
            return connection

    def migrate(self, *, post: bool = True, wait: timedelta = WAIT) -> list[Step]:
        with self.connect_sync("migrate") as connection:
            return Migrator(connection, self.statements.schema, self.events).migrate(post=post, wait=wait)

    def check_schema(self) -> None:
        with self.connect_sync("check") as connection:
            Migrator(connection, self.statements.schema).check()
