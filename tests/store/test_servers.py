"""Any PostgreSQL that people run: each server and each configuration takes the same set of round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from psycopg import sql

from tests.support import round_trips
from tests.support.database import TEMPLATE, TestServer
from tests.support.majors import WHEELS
from tests.support.servers import DEBIAN, NEWEST, Servers
from trueup import App
from trueup.store.db.migrate import Migrator

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@dataclass(frozen=True)
class Case:
    """A server, how its database was made, and what its database sets for every session."""

    title: str
    server: str = NEWEST
    made: str = f"template {TEMPLATE}"
    settings: tuple[tuple[str, str], ...] = ()
    after: str = ""  # statements, before anything is stored

    def __str__(self) -> str:
        return self.title


def sets(title: str, **settings: str) -> Case:
    return Case(title, settings=tuple(settings.items()))


SWITCHES = [
    f"enable_{node}"
    for node in (
        "indexscan",
        "indexonlyscan",
        "bitmapscan",
        "tidscan",
        "nestloop",
        "hashjoin",
        "sort",
        "hashagg",
        "material",
    )
]
CASES = [
    *(Case(str(major), server=str(major)) for major in sorted({*WHEELS, 16})),
    Case("debian in german", server=DEBIAN, settings=(("lc_messages", "C.UTF-8"),)),
    Case(
        "icu collation",
        server=DEBIAN,
        made="template template0 encoding 'UTF8' locale_provider icu icu_locale 'de-u-kn' locale 'C'",
    ),
    Case("latin1 database", made="template template0 encoding 'LATIN1' locale_provider libc locale 'C'"),
    Case("published, logical", server=DEBIAN, after="create publication everything for all tables"),
    Case("published", after="create publication everything for all tables"),
    sets("latin1 client", client_encoding="LATIN1"),
    sets("lima, german dates", timezone="America/Lima", datestyle="German", intervalstyle="sql_standard"),
    sets("kathmandu, sql dates", timezone="Asia/Kathmandu", datestyle="SQL, DMY", intervalstyle="iso_8601"),
    sets("serializable", default_transaction_isolation="serializable"),
    sets("repeatable read", default_transaction_isolation="repeatable read"),
    sets(
        "short timeouts",
        statement_timeout="3s",
        lock_timeout="1s",
        idle_in_transaction_session_timeout="2s",
        idle_session_timeout="1s",
        transaction_timeout="3s",
    ),
    sets(
        "hostile text settings",
        bytea_output="escape",
        extra_float_digits="-15",
        standard_conforming_strings="off",
        quote_all_identifiers="on",
        backslash_quote="on",
        transform_null_equals="on",
        xmlbinary="hex",
        xmloption="document",
        default_text_search_config="simple",
    ),
    sets(
        "planner against us",
        **dict.fromkeys(SWITCHES, "off"),
        plan_cache_mode="force_generic_plan",
        work_mem="64kB",
        from_collapse_limit="1",
        join_collapse_limit="1",
        default_statistics_target="1",
    ),
    sets(
        "talkative, parallel, deferrable",
        client_min_messages="debug5",
        plan_cache_mode="force_custom_plan",
        debug_parallel_query="regress",
        default_transaction_deferrable="on",
        synchronous_commit="off",
        row_security="off",
    ),
]


@contextmanager
def database(server: TestServer, case: Case) -> Iterator[str]:
    with server.made(case.made) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            Migrator(connection, "trueup").migrate()
            connection.execute(round_trips.TABLES.encode() + case.after.encode())
            name = sql.Identifier(connection.info.dbname)
            for setting, value in case.settings:
                values = sql.SQL(", ").join(sql.Literal(part) for part in value.split(", "))
                connection.execute(
                    sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), values)
                )
        yield url


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_everything_works(servers: Servers, case: Case) -> None:
    with database(servers[case.server], case) as url:
        await round_trips.everything(url)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_workers_that_start_at_once_all_start_whatever_the_isolation_level(servers: Servers, level: str) -> None:
    with database(servers[NEWEST], sets(level, default_transaction_isolation=level)) as url:
        apps = [App(url) for _ in range(5)]
        for app in apps:
            round_trips.declare_jobs(app, [])
            app.every("1h")(nothing)
        async with AsyncExitStack() as stack:
            for app in apps:
                await stack.enter_async_context(app)
            await asyncio.gather(*(stack.enter_async_context(app.worker()) for app in apps))
            assert round_trips.count(url, "trueup.workers") == len(apps)


async def nothing() -> None: ...
