"""The PostgreSQL server of a test run, and databases cloned from a template."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from tests.support.waiting import wait_until
from trueup.embedded.cluster import Cluster
from trueup.store.db.migrate import Migrator

# Crashes of processes are tested with real kills; crashes of the machine are not, so the disk need not be waited for.
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "shared_buffers": "128MB",
}
TEMPLATE = "trueup_template"


class TestServer:
    __test__ = False

    def __init__(self, directory: Path, *, stays_connected: bool = False, **settings: str) -> None:
        """`stays_connected`: where databases are made by the thousand, and nothing restarts it or counts its connections."""
        self.cluster = Cluster(directory, settings={**FAST, **settings})
        self._numbers = itertools.count(1)
        self._stays_connected = stays_connected
        self._connection: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        self.cluster.start()
        self._execute(f"create database {TEMPLATE}")
        with psycopg.connect(self.cluster.url(TEMPLATE), autocommit=True) as connection:
            Migrator(connection, "trueup").migrate()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
        self.cluster.stop("immediate")

    @contextmanager
    def database(self, template: str = TEMPLATE) -> Iterator[str]:
        with self.made(f"template {template} strategy file_copy") as url:
            yield url

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
        end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s"
        with self._connected() as connection:
            # `force` alone looks ten times a second whether the sessions have gone, and most are just going.
            wait_until(lambda: not connection.execute(end, [name]).rowcount, f"nobody uses {name}", pause=0.002)
            connection.execute(sql.SQL(f"drop database if exists {name} with (force)"))

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
