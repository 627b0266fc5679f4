"""Clients that enqueue jobs all the time and write down what came of each commit."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg

from tests.crash import gated
from tests.ha.checks import ACKNOWLEDGED, UNCONFIRMED, UNKNOWN, Write
from trueup import App, DatabaseUnavailable
from trueup.clock import elapsed
from trueup.store.db.confirmed import WAITS_IN, Unconfirmed

PAUSE = 0.06  # seconds between two writes of one client
ROWS_EVERY = 8  # writes: how often rows for the reconcilers are part of one
PLAIN_CLIENTS = 3
END_WITHIN = 60
AWAY = (psycopg.Error, DatabaseUnavailable, OSError)
POSITION = "select pg_catalog.pg_current_wal_insert_lsn() - '0/0'"

TABLE = "create table orders (n bigint primary key)"
ORDER = "insert into orders (n) values (%s)"
TASK = "insert into tasks_{} (id, changed_at) values (%s, now() - interval '1 day')"


class Producers:
    """They write from `start` until `stop`. Each write has a number of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.writes: list[Write] = []
        self._numbers = itertools.count(1)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._launch(lambda: self._outbox(self.url))
        self._launch(lambda: asyncio.run(self._plain()))

    def start_inside(self, url: str) -> None:
        """One more, with a way of its own to one server."""
        self._launch(lambda: self._outbox(url, inside=True))

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(END_WITHIN)
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"a client still waits for the database after {END_WITHIN} s")

    def acknowledged(self, *, inside: bool = False) -> list[Write]:
        return [each for each in list(self.writes) if each.outcome == ACKNOWLEDGED and each.inside == inside]

    def _launch(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _note(
        self, n: int, how: str, outcome: str, began: float, after: int | None = None, inside: bool = False
    ) -> None:
        self.writes.append(Write(n, how, outcome, began, elapsed(), after, inside))

    def _outbox(self, url: str, *, inside: bool = False) -> None:
        """The client's own row, rows for the reconcilers, and a job, in the client's own transaction."""
        app = App(url)
        jobs = gated.declare(app)
        for connection in self._connections(url):
            warnings: list[
                bool
            ] = []  # whether each is about a wait that was cancelled: it can be read only when it comes
            connection.add_notice_handler(lambda notice, said=warnings: said.append(notice.source_function == WAITS_IN))
            with suppress(*AWAY):
                while not self._stopping.is_set():
                    warnings.clear()
                    n, began = next(self._numbers), elapsed()
                    try:
                        self._transaction(connection, jobs, n)
                    except AWAY:
                        self._note(n, "outbox", UNKNOWN, began, inside=inside)
                        raise
                    outcome = UNCONFIRMED if any(warnings) else ACKNOWLEDGED
                    position: int | None = None
                    try:
                        position = int(connection.execute(POSITION).fetchone()[0])  # type: ignore[index]
                    finally:
                        self._note(n, "outbox", outcome, began, position, inside)
                    self._stopping.wait(PAUSE)
        app.close_sync()

    def _transaction(self, connection: psycopg.Connection[Any], jobs: gated.Jobs, n: int) -> None:
        with connection.transaction():
            connection.execute(ORDER, [n])
            if n % ROWS_EVERY == 0:
                for mode in gated.MODES:
                    connection.execute(TASK.format(mode).encode(), [n])
            jobs.transfer.using(tx=connection).enqueue_sync(n)

    def _connections(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """One after the other, for as long as this goes on."""
        while not self._stopping.is_set():
            try:
                connection = psycopg.connect(url, autocommit=True)
            except psycopg.OperationalError:
                self._stopping.wait(0.1)
                continue
            with suppress(*AWAY), connection:
                yield connection

    async def _plain(self) -> None:
        """Several at a time, in commits of trueup's own, which they share when there are many."""
        async with App(self.url) as app:
            jobs = gated.declare(app)
            async with asyncio.TaskGroup() as clients:
                for _ in range(PLAIN_CLIENTS):
                    clients.create_task(self._plain_client(app, jobs))

    async def _plain_client(self, app: App, jobs: gated.Jobs) -> None:
        while not self._stopping.is_set():
            n, began = next(self._numbers), elapsed()
            try:
                await jobs.transfer.enqueue(n)
            except AWAY as error:
                self._note(n, "plain", UNCONFIRMED if isinstance(error, Unconfirmed) else UNKNOWN, began)
                await asyncio.sleep(0.1)
                continue
            position: int | None = None
            with suppress(*AWAY):
                async with app.store.pool.use() as connection:
                    row = await (await connection.execute(POSITION.encode())).fetchone()
                    position = int(row[0]) if row else None
            self._note(n, "plain", ACKNOWLEDGED, began, position)
            await asyncio.sleep(PAUSE * PLAIN_CLIENTS)
