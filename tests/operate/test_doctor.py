"""Each finding of the doctor is provoked once on a real server, and a clean one gives none."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.database import TestServer
from tests.support.memory import in_memory
from tests.support.pgbouncer import PgBouncer
from tests.support.ports import number, reserve
from tests.support.watching import Watched
from trueup import App
from trueup.events import NaiveTimestamp
from trueup.operate import checks
from trueup.operate.checks import Finding
from trueup.operate.doctor import Limits, Machine, examine
from trueup.store.doctor import _expected

TABLES = """
create table payments (id int primary key, state text not null, changed_at timestamp not null default now(), due_at timestamptz);
create table orders (id int primary key, state text not null, changed_at timestamptz not null default now());
"""


def examined(
    url: str,
    declare: Callable[[App], None] = lambda app: None,
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
    machine: Machine = Machine(),  # noqa: B008
    **settings: Any,
) -> list[Finding]:
    async def run() -> list[Finding]:
        app = App(url, **settings)
        declare(app)
        try:
            return list(await examine(await app.open(), app.settings, app._reconcilers.all(), limits, machine))
        finally:
            await app.close()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def url(server: TestServer) -> Iterator[str]:
    """A database with a schedule in a time zone, that is put right again by each test."""
    with server.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLES)

        async def declare() -> None:
            async with App(url) as app:

                @app.cron("0 3 * * *", tz="Europe/Berlin")
                async def nightly() -> None: ...

                async with app.worker():
                    pass

        asyncio.run(declare())
        yield url


@contextmanager
def changed(url: str, change: str, back: str) -> Iterator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in change.split(";"):
            connection.execute(statement.encode())
        try:
            yield
        finally:
            for statement in back.split(";"):
                connection.execute(statement.encode())


@contextmanager
def idle_in_transaction(url: str) -> Iterator[None]:
    with psycopg.connect(url, application_name="report.py") as connection:
        connection.execute("select 1")
        yield
        connection.rollback()


def reconciles(table: str, **options: Any) -> Callable[[App], None]:
    def declare(app: App) -> None:
        rows = app.table(table, key="id", state="state", changed_at="changed_at")

        @rows.reconcile("open", name="settle", stale_for="1h", **options)
        async def settle(row: Any) -> None: ...

    return declare


def test_a_clean_server_with_a_reconciler_gives_no_finding(url: str) -> None:
    assert examined(url, reconciles("orders")) == []


def test_the_statement_for_a_missing_index_makes_it_as_it_was(url: str) -> None:
    definitions = (
        "select i.relname, pg_get_indexdef(i.oid) from pg_index as x join pg_class as i on i.oid = x.indexrelid"
        " where i.relnamespace = 'trueup'::regnamespace and not i.relispartition order by 1"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        before = connection.execute(definitions).fetchall()
        assert {name for name, _ in before} == _expected("trueup").keys()
        for name, made in _expected("trueup").items():
            table = re.search(r"(?:ON|TABLE) (trueup\.\w+) ", made)
            assert table is not None
            dropped = (
                f"alter table {table[1]} drop constraint {name}"
                if "CONSTRAINT" in made
                else f"drop index trueup.{name}"
            )
            connection.execute(dropped.encode())
            connection.execute(made.encode())
        assert connection.execute(definitions).fetchall() == before


HOUR = timedelta(hours=1)


def ahead() -> datetime:
    return datetime.now(UTC) + HOUR


def behind() -> datetime:
    return datetime.now(UTC) - HOUR


INVALID = "update pg_index set indisvalid = {} where indexrelid = 'trueup.jobs_unique'::regclass"
SLOT = "select pg_create_physical_replication_slot('doctor', true); create table moved as select generate_series(1, 1000) as n"
CHANGED = {
    "a missing index": (
        (
            "drop index trueup.jobs_stopping",
            "create index jobs_stopping on trueup.jobs (holder) where cancel_requested_at is not null",
        ),
        Limits(),
        ("index", "error", "trueup.jobs_stopping is missing", "CREATE INDEX CONCURRENTLY jobs_stopping ON trueup.jobs"),
    ),
    "an invalid index": (
        (INVALID.format("false"), INVALID.format("true")),
        Limits(),
        ("index", "error", "trueup.jobs_unique is not valid", "reindex index concurrently trueup.jobs_unique"),
    ),
    "autovacuum off for a table": (
        (
            "alter table trueup.jobs set (autovacuum_enabled = off)",
            "alter table trueup.jobs reset (autovacuum_enabled)",
        ),
        Limits(),
        ("autovacuum", "error", "off for trueup.jobs", "alter table trueup.jobs reset (autovacuum_enabled"),
    ),
    "dead rows": (
        (
            "insert into trueup.rates select n::text, now() from generate_series(1, 50) as n; delete from trueup.rates; select pg_stat_force_next_flush()",
            "vacuum trueup.rates",
        ),
        dataclasses.replace(Limits(), dead_rows=10),
        ("autovacuum", "warning", "trueup.rates has 50 dead and 0 live rows", "vacuum trueup.rates"),
    ),
    "a replication slot that keeps WAL": (
        (SLOT, "drop table moved; select pg_drop_replication_slot('doctor')"),
        dataclasses.replace(Limits(), wal_kept=0.0),
        ("replication_slot", "warning", "replication slot doctor is not used", "pg_drop_replication_slot('doctor')"),
    ),
    "a migration that is missing": (
        (
            "update trueup.migrations set number = 9016 where number = 16",
            "update trueup.migrations set number = 16 where number = 9016",
        ),
        Limits(),
        ("schema", "error", "lacks 0016_pre_health", "trueup migrate"),
    ),
}


@pytest.mark.parametrize(("change", "limits", "expected"), CHANGED.values(), ids=CHANGED)
def test_what_is_wrong_in_the_database_is_named_with_what_to_do(
    url: str, change: tuple[str, str], limits: Limits, expected: tuple[str, str, str, str]
) -> None:
    with changed(url, *change):
        (finding,) = [
            each
            for each in examined(url, limits=limits)
            if "replication slot" not in each.problem or "doctor" in each.problem
        ]
    assert_says(finding, *expected)


SHIFT = "Night-shift 100%, O'Brien"  # a role whose name needs quotes
CAUSES = {
    **{
        f"autovacuum of a table is {spelling}": (
            f"alter table trueup.jobs set (autovacuum_enabled = {spelling})",
            "autovacuum",
        )
        for spelling in ("off", "false", "0", "no", "F")
    },
    "autovacuum of long values is off": ("alter table trueup.jobs set (toast.autovacuum_enabled = 0)", "autovacuum"),
    "a table may not be written": (f'revoke update on trueup.jobs from "{SHIFT}"', "privileges"),
    "a sequence may not be used": (f'revoke usage on sequence trueup.lease_terms from "{SHIFT}"', "privileges"),
    "an index is missing": ("drop index trueup.jobs_stopping", "index"),
}
STATEMENT = re.compile(r"\b(?:alter|create|drop|grant|reindex|rollback|select|vacuum) [^;]*", re.IGNORECASE)


@pytest.fixture(scope="module")
def shift_url(server: TestServer) -> Iterator[str]:
    """A database with the grants that the page on deploying gives to a role that does not own the schema."""
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'create role "{SHIFT}" login'.encode())
        for granted in ("usage on schema", "all on all tables in schema", "usage on all sequences in schema"):
            connection.execute(f'grant {granted} trueup to "{SHIFT}"'.encode())
        yield url
        connection.execute(f'drop owned by "{SHIFT}"; drop role "{SHIFT}"'.encode())


def findings_of_shift(url: str, check: str) -> list[Finding]:
    given = conninfo_to_dict(url, user=SHIFT)
    return [each for each in examined(make_conninfo(**given)) if each.check == check]


@pytest.mark.parametrize(("cause", "check"), CAUSES.values(), ids=CAUSES)
def test_a_finding_ends_when_its_advice_is_followed_to_the_letter(shift_url: str, cause: str, check: str) -> None:
    with psycopg.connect(shift_url, autocommit=True) as connection:
        assert findings_of_shift(shift_url, check) == []
        connection.execute(cause.encode())
        (finding,) = findings_of_shift(shift_url, check)
        for statement in STATEMENT.findall(finding.advice):
            connection.execute(statement.encode())
    assert findings_of_shift(shift_url, check) == []


def test_privileges_on_a_day_of_the_history_are_those_of_its_table(shift_url: str) -> None:
    """The owner creates a day without grants, which no statement of the others names."""
    day = "create table trueup.a_day partition of trueup.history_done for values from ('2001-01-01') to ('2001-01-02')"
    with changed(shift_url, day, "drop table trueup.a_day"):
        assert findings_of_shift(shift_url, "privileges") == []


@pytest.mark.parametrize(
    ("change", "back"),
    [
        (
            'alter schema trueup owner to "{}"',
            'alter schema trueup owner to postgres; grant usage on schema trueup to "{}"',
        ),
        ('grant create on schema trueup to "{}"', 'revoke create on schema trueup from "{}"'),
    ],
    ids=["it owns the schema", "it may create tables"],
)
def test_a_role_that_cannot_create_days_of_the_history_is_told_so(shift_url: str, change: str, back: str) -> None:
    """A day is attached to a table, and only that table's owner may do so."""
    with changed(shift_url, change.format(SHIFT), back.format(SHIFT)):
        (finding,) = findings_of_shift(shift_url, "ownership")
    assert "daily partitions" in finding.problem


def test_a_schema_of_a_newer_release_is_answered_with_a_newer_release(url: str) -> None:
    newer = "insert into trueup.migrations values (9999, 'only', 'later', now())"

    async def check() -> tuple[Finding, ...]:
        async with App(url) as app:
            return (await app.check()).findings

    with changed(url, newer, "delete from trueup.migrations where number = 9999"):
        for (finding,) in (examined(url), asyncio.run(check())):
            assert "9999" in finding.problem
            assert finding.advice == "install the newer trueup here"


def assert_says(finding: Finding, check: str, severity: str, problem: str, advice: str) -> None:
    assert (finding.check, finding.severity) == (check, severity)
    assert problem in finding.problem
    assert advice in finding.advice


def test_a_session_that_sits_in_a_transaction_is_named_with_how_to_end_it(url: str) -> None:
    with idle_in_transaction(url):
        (finding,) = examined(url, limits=dataclasses.replace(Limits(), idle_for=timedelta()))
    assert_says(finding, "old_transaction", "warning", "report.py of role postgres", "pg_terminate_backend(")
    assert "idle in transaction" in finding.problem


@pytest.mark.parametrize(("now", "says"), [(ahead, "ahead of"), (behind, "behind")])
def test_a_clock_that_is_wrong_by_an_hour_is_noticed(url: str, now: Callable[[], datetime], says: str) -> None:
    (finding,) = examined(url, machine=Machine(now=now))
    assert_says(finding, "clock", "warning", f"clock is 3600 s {says} the database server's", "NTP")


def test_time_zone_data_that_differ_are_noticed(url: str) -> None:
    """As if the package had Berlin at UTC+1 all year."""
    (finding,) = examined(url, machine=Machine(offset=lambda name, moment: 3600.0))
    assert_says(finding, "time_zones", "warning", "differ about Europe/Berlin", "tzdata")


def test_columns_without_a_time_zone_are_named_with_the_fix(url: str) -> None:
    (finding,) = examined(url, reconciles("payments"))
    assert_says(finding, "naive_timestamp", "warning", "payments.changed_at has no time zone", "TYPE timestamptz USING")


@pytest.mark.asyncio
async def test_a_worker_that_starts_warns_of_columns_without_a_time_zone(url: str) -> None:
    app = App(url)
    events = Watched(app)
    reconciles("payments", run_at_start=False)(app)
    async with app.worker():
        (event,) = await events.seen(NaiveTimestamp)
    await app.close()
    assert (event.reconciler, event.table, event.column) == ("settle", "payments", "changed_at")
    with psycopg.connect(url) as connection:
        connection.execute(event.ddl.partition(" (or")[0].encode())
        connection.rollback()


def test_a_table_that_a_worker_would_refuse_is_an_error(url: str) -> None:
    (finding,) = examined(url, reconciles("nothing"))
    assert_says(finding, "table", "error", "no such table", "would not start")


def test_a_large_table_without_the_index_of_a_reconciler_is_named_with_the_statement(url: str) -> None:
    fill = "insert into orders select n, 'open', now() from generate_series(1, 30000) as n; analyze orders"
    with changed(url, fill, "truncate orders"):
        (finding,) = examined(url, reconciles("orders"))
    assert_says(
        finding, "index", "warning", "reads 30,000 rows of orders", "CREATE INDEX CONCURRENTLY ON public.orders"
    )


def test_privileges_that_are_missing_are_an_error_and_not_being_the_owner_a_warning(url: str) -> None:
    role = "create role examined login; grant usage on schema trueup to examined; grant select on all tables in schema trueup to examined"
    as_role = url.replace("postgres@", "examined@")
    with changed(url, role, "drop owned by examined; drop role examined"):
        (finding,) = examined(as_role)
        assert_says(finding, "privileges", "error", "(insert, update, delete)", "grant select, insert, update, delete")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("grant select, insert, update, delete on all tables in schema trueup to examined")
            connection.execute("grant usage on all sequences in schema trueup to examined")
        (finding,) = examined(as_role)
        assert_says(finding, "ownership", "warning", "does not own the tables of schema trueup", "trueup migrate")


def test_a_role_that_may_not_read_and_a_server_that_is_away_are_findings(url: str) -> None:
    """An error instead would be all that a machine reads of it: nothing."""

    async def check(url: str) -> tuple[Finding, ...]:
        async with App(url) as app:
            return (await app.check()).findings

    with changed(url, "create role stranger login", "drop role stranger"):
        as_stranger = url.replace("postgres@", "stranger@")
        for (finding,) in (examined(as_stranger), asyncio.run(check(as_stranger))):
            assert_says(
                finding, "privileges", "error", "permission denied for schema trueup", "grant usage on schema trueup"
            )
    with reserve() as nobody:
        nowhere = f"postgresql://shop:geheim@127.0.0.1:{number(nobody)}/shop"
        (finding,) = asyncio.run(App(nowhere).examine())
    assert_says(finding, "database", "error", "cannot connect to postgresql://shop:***@", "workers reconnect")


def test_the_advice_on_a_server_that_refuses_is_not_to_start_it(url: str) -> None:
    for part, given, says in (("dbname", "nothing", "createdb"), ("user", "nobody_at_all", "createuser")):
        (finding,) = asyncio.run(App(make_conninfo(**conninfo_to_dict(url, **{part: given}))).examine())
        assert finding.check == "database"
        assert says in finding.problem
        assert "start" not in finding.problem + finding.advice


def test_a_database_that_does_not_answer_is_a_finding_and_keeps_no_one_waiting(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Monitoring that asks each minute would wait, too, and take one connection after the other."""

    async def ask() -> tuple[Finding, ...]:
        async with App(url) as app:
            return (*(await app.check()).findings, *await app.examine())

    monkeypatch.setattr(checks, "ANSWER_WITHIN", 0.5)
    with changed(url, "begin; lock table trueup.schedules", "rollback"), psycopg.connect(url) as connection:
        findings = asyncio.run(ask())
        (advised,) = {STATEMENT.findall(each.advice)[0] for each in findings}
        waiting = connection.execute(advised.encode()).fetchall()
    assert [(each.check, each.severity) for each in findings] == [("database", "error")] * 2
    assert waiting == []  # what was asked is given up on the server, too


def test_few_connections_left_are_noticed_whatever_limits_them(shift_url: str) -> None:
    database = conninfo_to_dict(shift_url)["dbname"]
    limited = [f'alter role "{SHIFT}" connection limit', f"alter database {database} connection limit"]
    url = make_conninfo(**conninfo_to_dict(shift_url, user=SHIFT))
    with changed(shift_url, *(";".join(f"{each} {number}" for each in limited) for number in (40, -1))):
        assert [each for each in examined(url) if each.check == "connections"] == []
        found = [
            each
            for each in examined(url, limits=dataclasses.replace(Limits(), connections=0.0))
            if each.check == "connections"
        ]
    for finding, whose, advice in zip(
        found,
        ("the server", f"database {database}", f'role "{SHIFT}"'),
        ("max_connections", *limited[::-1]),
        strict=True,
    ):
        assert_says(finding, "connections", "warning", f"connections of {whose} are taken", advice)
    assert [" of 40 " in each.problem for each in found] == [False, True, True]


def test_a_redis_that_is_away_is_an_error(url: str) -> None:
    with reserve() as nobody:
        (finding,) = examined(url, redis_url=f"redis://:geheim@127.0.0.1:{number(nobody)}/0")
    assert_says(finding, "redis", "error", "cannot be reached", "redis_url")
    assert "geheim" not in finding.problem


@pytest.mark.slow
def test_a_pooler_and_a_server_without_autovacuum_are_noticed() -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trueup-pg-", dir=in_memory())))
        server = stack.enter_context(TestServer(directory, autovacuum="off", max_prepared_transactions="1"))
        url = stack.enter_context(server.database())
        (finding,) = examined(url)
        assert_says(
            finding, "autovacuum", "error", "autovacuum or track_counts is off", "alter system set autovacuum = on"
        )
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in ("begin", "create table it ()", "prepare transaction 'it''s 100%'"):
                connection.execute(statement.encode())
            at_once = dataclasses.replace(Limits(), idle_for=timedelta())
            (finding,) = (each for each in examined(url, limits=at_once) if each.check == "old_transaction")
            connection.execute(STATEMENT.findall(finding.advice)[0].encode())
        assert not [each for each in examined(url, limits=at_once) if each.check == "old_transaction"]
        pooled = stack.enter_context(PgBouncer(url)).url(conninfo_to_dict(url)["dbname"])
        severities = {each.severity for each in examined(pooled, prepare="true") if each.check == "pooler"}
        assert severities == {"error", "warning"}
        assert not [each for each in examined(pooled, listen=False) if each.check == "pooler"]
