"""The PostgreSQL server of a test run, and databases cloned from a template."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.pq import ExecStatus

from tests.support.waiting import wait_until
from trueup import App
from trueup.embedded.cluster import Cluster
from trueup.store.db.migrate import Migrator
from trueup.store.history import Kept

# Crashes of processes are tested with real kills; crashes of the machine are not, so the disk need not be waited for.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "shared_buffers": "128MB",
}
TEMPLATE = "trueup_template"
COPIED = "strategy file_copy"


async def make_days(url: str) -> None:
    """Create the partitions of the history that the first worker on a new database would create: half of what its start costs."""
    kept = Kept(*repeat(timedelta(days=7), 5))
    async with App(url) as app:
        await app.store.history.prune(kept)


CATALOGS = """
select format('vacuum full pg_catalog.%I', relname) from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' order by relname
"""


def make_small(url: str) -> None:
    """A template is copied and removed thousands of times: the system's catalogs without what migrations left there, and without
    the maps of it. The tables themselves stay as never looked at, which plans depend on."""
    with psycopg.connect(url, autocommit=True) as connection:
        for (statement,) in connection.execute(CATALOGS).fetchall():
            connection.execute(statement)
    # The rewritten catalogs made `pg_internal.init` invalid. The next session writes it, and copies have it: 2.5 ms for the first
    # session of each copy otherwise.
    with psycopg.connect(url):
        pass


class Meanwhile:
    """A connection whose last statement may still be under way while its user goes on."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def send(self, statement: str) -> None:
        """Raises what the statement before this one ended with."""
        self.wait()
        self._connection.pgconn.send_query(statement.encode())

    def wait(self) -> None:
        results = []
        while (result := self._connection.pgconn.get_result()) is not None:
            results.append(result)
        for result in results:
            if result.status == ExecStatus.FATAL_ERROR:
                raise psycopg.errors.error_from_result(result)

    def close(self) -> None:
        self._connection.close()


class Ahead:
    """Databases by the thousand: the next one is made, and the last one dropped, while a test runs."""

    def __init__(self, url: str, how: str) -> None:
        self._how = how
        self._making, self._dropping = Meanwhile(url), Meanwhile(url)
        self._numbers = itertools.count(1)
        self._next = self._make()

    def _make(self) -> str:
        name = f"ahead_{next(self._numbers)}"
        self._making.send(f"create database {name} {self._how}")
        return name

    def take(self) -> str:
        self._making.wait()
        taken, self._next = self._next, self._make()
        return taken

    def drop(self, name: str) -> None:
        """Its sessions have ended, or are about to."""
        self._dropping.send(f"drop database if exists {name} with (force)")

    def close(self) -> None:
        self._making.close()
        self._dropping.close()


class TestServer:
    __test__ = False

    def __init__(self, directory: Path, *, stays_connected: bool = False, **settings: str) -> None:
        """`stays_connected`: where databases are made by the thousand, and nothing restarts it or counts its connections."""
        self.cluster = Cluster(directory, settings={**FAST, **settings})
        self._numbers = itertools.count(1)
        self._stays_connected = stays_connected
        self._connection: psycopg.Connection[Any] | None = None
        self._ahead: Ahead | None = None

    def __enter__(self) -> Self:
        self.cluster.start()
        self._execute(f"create database {TEMPLATE}")
        with psycopg.connect(self.cluster.url(TEMPLATE), autocommit=True) as connection:
            Migrator(connection, "trueup").migrate()
        if self._stays_connected:
            asyncio.run(make_days(self.cluster.url(TEMPLATE)))
            make_small(self.cluster.url(TEMPLATE))
            self._end_sessions(TEMPLATE)
            self._ahead = Ahead(self.cluster.url(), f"template {TEMPLATE} {COPIED}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in (self._connection, self._ahead):
            if connection is not None:
                connection.close()
        self.cluster.stop("immediate")

    @contextmanager
    def database(self, template: str = TEMPLATE) -> Iterator[str]:
        if self._ahead is None or template != TEMPLATE:
            with self.made(f"template {template} {COPIED}") as url:
                yield url
            return
        name = self._ahead.take()
        try:
            yield self.cluster.url(name)
        finally:
            self._end_sessions(name)
            self._ahead.drop(name)

    @contextmanager
    def made(self, how: str) -> Iterator[str]:
        """A database that is made with these options."""
        name = f"test_{next(self._numbers)}"
        self._execute(f"create database {name} {how}")
        try:
            yield self.cluster.url(name)
        finally:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._end_sessions(name)
        self._execute(f"drop database if exists {name} with (force)")

    def _end_sessions(self, name: str) -> None:
        """`force` alone looks ten times a second whether the sessions have gone, and most are just going."""
        end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
        with self._connected() as connection:
            wait_until(lambda: not connection.execute(end, [name]).rowcount, f"nobody uses {name}", pause=0.002)

    def _execute(self, statement: str) -> None:
        with self._connected() as connection:
            connection.execute(sql.SQL(statement))

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        if not self._stays_connected:
            with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
                yield connection
            return
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.cluster.url(), autocommit=True)
        yield self._connection
