"""Databases for tests: cloned from a migrated template, on a server of the developer's or on the embedded PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from trueup.dsn import libpq_url, mask
from trueup.embedded.cluster import Cluster
from trueup.errors import ConfigError
from trueup.store.db.migrate import Migrator
from trueup.store.db.reasons import reason

# Nothing of this outlives the test run, so writes need not wait for the disk.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Databases:
    """Makes databases on one server; its user must be allowed to."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = libpq_url(url)
        self._template = f"trueup_template_{uuid4().hex[:12]}"
        self._schema = schema

    @contextmanager
    def template(self) -> Iterator[None]:
        self._execute("create database {}", self._template)
        try:
            with psycopg.connect(self._named(self._template), autocommit=True) as connection:
                Migrator(connection, self._schema).migrate()
            yield
        finally:
            self._execute("drop database {} with (force)", self._template)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a migrated database of its own; it is dropped afterwards."""
        name = f"trueup_test_{uuid4().hex[:12]}"
        self._execute("create database {} template {}", name, self._template)
        try:
            yield self._named(name)
        finally:
            self._execute("drop database {} with (force)", name)

    def _named(self, database: str) -> str:
        return on_server(self._url, database)

    def _execute(self, statement: str, *names: str) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
        except (psycopg.OperationalError, errors.InsufficientPrivilege) as error:
            why = reason(error, mask(self._url))
            raise ConfigError(
                f"no database for tests: {why} (TRUEUP_TEST_DATABASE_URL, or trueup_database_url in pytest's ini file, "
                "names the server; its user must be allowed to create databases)"
            ) from None


def on_server(url: str, database: str) -> str:
    """The URL of another database on the same server. It stays a URL, which SQLAlchemy and asyncpg read, too."""
    if "://" not in url:  # host=… port=…, which only libpq reads
        return make_conninfo(url, dbname=database)
    place, _, query = url.partition("?")
    scheme, _, rest = place.partition("://")
    options = "&".join(option for option in query.split("&") if option and not option.startswith("dbname="))
    return f"{scheme}://{rest.partition('/')[0]}/{database}{'?' if options else ''}{options}"


@contextmanager
def databases(url: str | None, directory: Path, schema: str = "trueup") -> Iterator[Databases]:
    """Makes databases on the server at this URL, or else on an embedded one in this directory, which is stopped at the end of the
    block."""
    cluster = None if url else Cluster(directory, settings=FAST)
    if cluster is not None:
        cluster.start()
    try:
        made = Databases(url or (cluster.url() if cluster else ""), schema)
        with made.template():
            yield made
    finally:
        if cluster is not None:
            cluster.stop("immediate")
