"""Debian's own PostgreSQL 15, as people run it: with LLVM, which compiles plans that look expensive, with ICU, with contrib
and with translations.

The servers of `majors` and of the embedded package have none of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.database import TEMPLATE
from tests.support.debian import library_path, unpack
from tests.support.majors import MajorServer
from tests.support.waiting import wait_until
from trueup.embedded import datadir

MAJOR = 15
PACKAGES = (
    f"postgresql-{MAJOR}",
    f"postgresql-client-{MAJOR}",
    f"postgresql-{MAJOR}-cron",
    "libllvm14",
    "libz3-4",
    "libedit2",
    "libbsd0",
    "libmd0",
    "libxml2",
    "libicu72",
    "libpq5",
    "libssl3",
    "libldap-2.5-0",
    "libsasl2-2",
    "libgssapi-krb5-2",
    "libkrb5-3",
    "libk5crypto3",
    "libkrb5support0",
    "libkeyutils1",
    "libcom-err2",
)
# In a database that is `explained`, each plan that was executed goes to the log, with what was compiled for it.
AUTO_EXPLAIN = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
    "log_line_prefix": "",
}
PLAN = re.compile(r"^LOG:  duration: .*? plan:\n((?:\t.*\n)+)", re.MULTILINE)


# Each with its `Query Text`, its `Plan`, and its `JIT` if something was compiled.
Plans = Callable[[], Iterator[dict[str, Any]]]


class DebianServer(MajorServer):
    """PostgreSQL 15 with just-in-time compilation on, as Debian, Ubuntu and the official images ship it."""

    __test__ = False

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, MAJOR, **AUTO_EXPLAIN, **settings)
        self._tree = unpack(PACKAGES)

    def _programs(self) -> Path:
        return self._tree / f"usr/lib/postgresql/{MAJOR}/bin"

    def _prepare(self, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("LD_LIBRARY_PATH", library_path(self._tree))
        environment = datadir.environment
        patch.setattr(datadir, "environment", lambda: {**environment(), "LANGUAGE": "de"})  # not in the locale C

    @contextmanager
    def german(self) -> Iterator[None]:
        """Its messages are in German meanwhile. Sessions that are open may take a moment to change."""
        with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
            connection.execute("alter system set lc_messages to 'C.UTF-8'")
            connection.execute("select pg_reload_conf()")
        wait_until(lambda: "existiert nicht" in self._refusal(), "the server speaks German")
        try:
            yield
        finally:
            with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
                connection.execute("alter system reset lc_messages")
                connection.execute("select pg_reload_conf()")
            wait_until(lambda: "does not exist" in self._refusal(), "the server speaks English again")

    def _refusal(self) -> str:
        with pytest.raises(psycopg.OperationalError) as raised:
            psycopg.connect(self.cluster.url("unheard_of"))
        return str(raised.value)

    @contextmanager
    def explained(self, template: str = TEMPLATE) -> Iterator[tuple[str, Plans]]:
        """A database, and the plans that were executed in it: read them when its connections are closed."""
        with self.database(template) as url, psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("alter database {} set auto_explain.log_min_duration = 0").format(
                    sql.Identifier(connection.info.dbname)
                )
            )
            since = self.cluster.log.stat().st_size
            yield url, lambda: self._plans(since)

    def _plans(self, since: int) -> Iterator[dict[str, Any]]:
        with self.cluster.log.open("rb") as log:
            log.seek(since)
            text = log.read().decode(errors="replace")
        for found in PLAN.finditer(text):
            yield json.loads(found[1])
