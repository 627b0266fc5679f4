from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.store.test_schema import dump
from tests.support.database import TestServer
from tests.support.pgbouncer import ADMIN_CONSOLE, PgBouncer
from tests.support.urls import connection_url
from tests.support.waiting import wait_until
from trueup import App
from trueup.embedded.cluster import Cluster
from trueup.errors import ConfigError, MigrationBlocked, SchemaMismatch
from trueup.events import Event, Events, MigrationApplied
from trueup.store.db.migrate import Migrator, Step, all_steps, refusal
from trueup.testing.worker import ManualWorker

MIGRATE = """
import sys, psycopg
from trueup.store.db.migrate import Migrator, Step, all_steps
with psycopg.connect(sys.argv[1], autocommit=True, prepare_threshold=None) as connection:
    print(len(Migrator(connection, "trueup", steps=[*all_steps(), *eval(sys.argv[2])]).migrate()))
"""

OURS = all_steps()
KNOWN = OURS[-1].number
NEXT = KNOWN + 1
PRE = Step(NEXT, "pre", "add_tag", "alter table {schema}.jobs add column tag text;")
POST = Step(NEXT, "post", "drop_progress", "alter table {schema}.jobs drop column progress;")
CONCURRENTLY = Step(
    NEXT,
    "only",
    "index_kinds",
    "-- no transaction\n"
    "drop index concurrently if exists {schema}.jobs_kind;\n"
    "create index concurrently jobs_kind on {schema}.jobs (kind);\n",
)


@pytest.fixture
def connection(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("how", ["", "-- no transaction\n"], ids=["in a transaction", "without"])
def test_a_step_takes_longer_than_the_timeouts_of_its_role(connection: psycopg.Connection, how: str) -> None:
    """An index of a large table takes minutes; while it is made concurrently, the session that holds the lock is idle."""
    Migrator(connection, "trueup").migrate()
    name = sql.Identifier(connection.info.dbname)
    for each in ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"):
        connection.execute(sql.SQL("alter database {} set {} = '400ms'").format(name, sql.Identifier(each)))
    slow = Step(NEXT, "only", "slow", f"{how}select pg_sleep(0.6);\n")
    with psycopg.connect(connection.info.dsn, autocommit=True) as limited:
        assert Migrator(limited, "trueup", steps=[*OURS, slow]).migrate() == [slow]


def columns(connection: psycopg.Connection, schema: str = "trueup") -> set[str]:
    query = "select column_name from information_schema.columns where table_schema = %s and table_name = 'jobs'"
    return {name for (name,) in connection.execute(query, [schema])}


def schemas(connection: psycopg.Connection) -> set[str]:
    return {name for (name,) in connection.execute("select nspname from pg_namespace where nspname !~ '^pg_'")}


def start_migrating(url: str, *further: Step, fault: str = "") -> subprocess.Popen[str]:
    """A process that migrates, with these steps after our own, and prints how many it applied."""
    return subprocess.Popen(
        [sys.executable, "-c", MIGRATE, url, repr(further)],
        env={**os.environ, "TRUEUP_FAULT": fault},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_migrating_twice_applies_each_step_once(connection: psycopg.Connection) -> None:
    migrator = Migrator(connection, "trueup")
    assert migrator.pending() == migrator.steps
    assert migrator.migrate() == migrator.steps
    assert migrator.pending() == migrator.migrate() == []


def test_each_applied_step_is_an_event(connection: psycopg.Connection) -> None:
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append, MigrationApplied)
    Migrator(connection, "trueup", events).migrate()
    assert [(event.number, event.step, event.title) for event in seen] == [
        (step.number, step.step, step.title) for step in all_steps()
    ]


@pytest.mark.slow
def test_of_five_concurrent_migrations_one_applies_each_step_and_all_succeed(
    empty_database_url: str, connection: psycopg.Connection
) -> None:
    waiting = "select count(*) = 7 from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    with psycopg.connect(empty_database_url) as first:
        first.execute("select pg_advisory_xact_lock(hashtextextended('trueup migrate trueup', 0))")
        processes = [start_migrating(empty_database_url) for _ in range(5)]
        wait_until(lambda: connection.execute(waiting).fetchone() == (True,), "all five are connected", timeout=30)
    answers = [process.communicate(timeout=30) for process in processes]
    assert [said for _, said in answers] == [""] * 5
    assert [process.returncode for process in processes] == [0] * 5
    assert sum(int(applied) for applied, _ in answers) == len(OURS)


@pytest.mark.slow
def test_a_migration_killed_halfway_leaves_nothing_and_the_next_run_completes_it(
    empty_database_url: str, connection: psycopg.Connection
) -> None:
    killed = start_migrating(empty_database_url, fault="mid_migration:kill")
    killed.communicate(timeout=30)
    assert killed.returncode == -signal.SIGKILL
    assert "trueup" not in schemas(connection)
    assert start_migrating(empty_database_url).communicate(timeout=30) == (f"{len(OURS)}\n", "")
    Migrator(connection, "trueup").check()


def test_a_step_that_fails_leaves_nothing_of_itself_and_the_steps_before_it_stay(
    connection: psycopg.Connection,
) -> None:
    broken = Step(NEXT, "only", "broken", "alter table {schema}.jobs add column tag text; select 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        Migrator(connection, "trueup", steps=[*all_steps(), broken]).migrate()
    assert "tag" not in columns(connection)
    Migrator(connection, "trueup").check()


def test_steps_are_applied_by_number_and_pre_before_post(tmp_path: Path) -> None:
    for name in ("0010_z.sql", "0002_post_b.sql", "0002_pre_b.sql", "0001_initial.sql", "schema.sql", "notes.md"):
        (tmp_path / name).write_text("select 1;")
    expected = ["0001_initial", "0002_pre_b", "0002_post_b", "0010_z"]
    assert [step.name for step in all_steps(tmp_path)] == expected


def test_the_old_release_works_between_pre_and_post_and_is_refused_after_post(connection: psycopg.Connection) -> None:
    old = Migrator(connection, "trueup")
    new = Migrator(connection, "trueup", steps=[*all_steps(), PRE, POST])
    old.migrate()

    with pytest.raises(SchemaMismatch, match=rf"'trueup' lacks {NEXT:04}_pre_add_tag; run `trueup migrate`"):
        new.check()
    assert new.migrate(post=False) == [PRE]
    new.check()
    old.check()
    assert {"tag", "progress"} <= columns(connection)

    assert new.migrate() == [POST]
    new.check()
    assert "progress" not in columns(connection)
    with pytest.raises(SchemaMismatch, match=rf"is at {NEXT:04}, beyond what this release knows \({KNOWN:04}\)"):
        old.check()


def test_what_old_workers_can_live_with_is_applied_also_after_a_post_step_that_waits(
    connection: psycopg.Connection,
) -> None:
    later = Step(NEXT + 1, "pre", "add_label", "alter table {schema}.jobs add column label text;")
    new = Migrator(connection, "trueup", steps=[*all_steps(), PRE, POST, later])
    Migrator(connection, "trueup").migrate()
    assert new.migrate(post=False) == [PRE, later]
    new.check()
    assert new.migrate() == [POST]
    assert new.pending() == []


def test_a_database_without_the_schema_is_a_mismatch_that_says_what_to_run(connection: psycopg.Connection) -> None:
    with pytest.raises(
        SchemaMismatch, match=r"no trueup schema 'elsewhere' yet; run `TRUEUP_SCHEMA=elsewhere trueup migrate`"
    ):
        Migrator(connection, "elsewhere").check()


def test_what_a_schema_lacks_is_counted_and_not_listed() -> None:
    steps = all_steps()
    old = {step.key for step in steps if step.number <= 20}
    lacking = [step.name for step in steps if step.number > 20 and step.step != "post"]
    assert f"lacks {len(lacking)} migrations, {lacking[0]} to {lacking[-1]}; run" in str(refusal("trueup", steps, old))


def test_a_step_without_a_transaction_can_make_an_index_concurrently(connection: psycopg.Connection) -> None:
    migrator = Migrator(connection, "trueup", steps=[*all_steps(), CONCURRENTLY])
    assert migrator.migrate() == migrator.steps
    valid = "select indisvalid from pg_index where indexrelid = 'trueup.jobs_kind'::regclass"
    assert connection.execute(valid).fetchone() == (True,)


def test_migrating_through_a_pooler_leaves_no_settings_in_its_sessions(
    connection: psycopg.Connection, empty_database_url: str
) -> None:
    """Those that a step needs outside a transaction cannot be given there."""
    name = connection.info.dbname
    with PgBouncer(empty_database_url) as pooler:
        with psycopg.connect(pooler.url(name), autocommit=True, prepare_threshold=None) as pooled:
            migrator = Migrator(pooled, "trueup", steps=[*OURS, CONCURRENTLY])
            with pytest.raises(ConfigError, match="cannot run through a pooler in transaction mode; connect directly"):
                migrator.migrate()
            assert migrator.pending() == [CONCURRENTLY]
        left = {setting for each in pooler.sessions(name) for setting in each.settings}
        assert left <= {"transaction_isolation"}  # of each transaction, and none of a session's


@pytest.mark.slow
def test_as_many_migrations_as_a_pooler_has_connections_do_not_keep_them_from_one_another(
    connection: psycopg.Connection, empty_database_url: str
) -> None:
    """As when all replicas start with `--migrate`: the one at work needs a second connection for some steps."""
    with PgBouncer(empty_database_url, default_pool_size=2) as pooler:
        url = pooler.url(connection.info.dbname)
        with psycopg.connect(url) as first:
            first.execute("select pg_advisory_xact_lock(hashtextextended('trueup migrate trueup', 0))")
            processes = [start_migrating(url) for _ in range(4)]
            wait_until(lambda: len(clients(pooler, connection.info.dbname)) == 5, "all four are connected", timeout=30)
        answers = [process.communicate(timeout=60) for process in processes]
    assert [said for _, said in answers] == [""] * 4
    assert sum(int(applied) for applied, _ in answers) == len(OURS)


def clients(pooler: PgBouncer, database: str) -> list[object]:
    with psycopg.connect(pooler.url(ADMIN_CONSOLE), autocommit=True) as console:
        return [client for client in console.execute("show clients") if client[2] == database]


@pytest.mark.slow
def test_a_pooler_without_a_second_connection_is_named_and_not_waited_for(
    connection: psycopg.Connection, empty_database_url: str
) -> None:
    with (
        PgBouncer(empty_database_url, default_pool_size=1) as pooler,
        psycopg.connect(pooler.url(connection.info.dbname), autocommit=True, prepare_threshold=None) as pooled,
        pytest.raises(MigrationBlocked, match="needs two connections at the same time, and the pooler has only one"),
    ):
        Migrator(pooled, "trueup").migrate(wait=timedelta(seconds=1))


@pytest.mark.slow
def test_a_step_without_a_transaction_that_was_killed_before_its_record_is_run_again(
    empty_database_url: str, connection: psycopg.Connection
) -> None:
    Migrator(connection, "trueup").migrate()
    killed = start_migrating(empty_database_url, CONCURRENTLY, fault="mid_migration:kill")
    killed.communicate(timeout=30)
    assert killed.returncode == -signal.SIGKILL
    made = connection.execute("select to_regclass('trueup.jobs_kind')::oid").fetchone()
    assert made != (None,), "the fault did not land after the statements"

    migrator = Migrator(connection, "trueup", steps=[*all_steps(), CONCURRENTLY])
    assert migrator.migrate() == [CONCURRENTLY]
    assert connection.execute("select to_regclass('trueup.jobs_kind')::oid").fetchone() not in (made, (None,))


def test_migrating_works_where_transactions_have_a_fixed_snapshot_by_default(connection: psycopg.Connection) -> None:
    name = sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("alter database {} set default_transaction_isolation = 'serializable'").format(name))
    with psycopg.connect(connection.info.dsn, autocommit=True, options="-c lock_timeout=5s") as other:
        assert len(Migrator(other, "trueup", steps=[*all_steps(), CONCURRENTLY]).migrate()) == len(OURS) + 1


@pytest.mark.asyncio
async def test_two_schemas_live_side_by_side_in_one_database(
    connection: psycopg.Connection, empty_database_url: str
) -> None:
    for schema, value in (("trueup", 1), ("other", 2)):
        async with App(empty_database_url, schema=schema) as app:
            app.store.migrate()

            @app.job
            async def echo(value: int) -> int:
                return value

            job = await echo.enqueue(value)
            worker = ManualWorker(app)
            await worker.begin()
            assert await worker.run_pending() == 1
            assert await job.result() == value
            await worker.end()
    assert {"trueup", "other"} <= schemas(connection)
    assert columns(connection, "other") == columns(connection, "trueup")


def test_the_printed_script_applied_with_psql_gives_the_same_database(server: TestServer) -> None:
    steps = [*all_steps(), PRE, POST]
    with server.database(template="template1") as migrated, server.database(template="template1") as scripted:
        with psycopg.connect(migrated, autocommit=True) as connection:
            Migrator(connection, "trueup", steps=steps).migrate()
        with psycopg.connect(scripted, autocommit=True) as connection:
            migrator = Migrator(connection, "trueup", steps=steps)
            psql = [server.cluster.programs / "psql", "--quiet", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", scripted]
            subprocess.run(psql, input=migrator.sql(), text=True, check=True, timeout=30, stdout=subprocess.DEVNULL)
            assert migrator.pending() == []
            assert migrator.sql() == ""
        assert dump(server, scripted) == dump(server, migrated)


def test_the_printed_script_runs_steps_without_a_transaction_outside_one(connection: psycopg.Connection) -> None:
    Migrator(connection, "trueup").migrate()
    script = Migrator(connection, "trueup", steps=[*all_steps(), CONCURRENTLY]).sql()
    assert "create index concurrently" in script
    assert "begin;" not in script


@pytest.fixture
def role(connection: psycopg.Connection) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"plain_{uuid4().hex[:8]}"
    identifier = sql.Identifier(name)
    connection.execute(sql.SQL("create role {} login nosuperuser").format(identifier))
    yield name
    connection.execute(sql.SQL("drop owned by {}").format(identifier))
    connection.execute(sql.SQL("reassign owned by {} to current_user").format(identifier))
    connection.execute(sql.SQL("drop role {}").format(identifier))


def as_role(url: str, role: str) -> str:
    return connection_url({**conninfo_to_dict(url), "user": role})


async def work_as(url: str) -> None:
    """Everything a deployment does, from the migration to a finished job, and the housekeeping."""
    async with App(url) as app:
        app.store.migrate()
        app.store.check_schema()

        @app.job
        async def double(value: int) -> int:
            return 2 * value

        job = await double.enqueue(21)
        worker = ManualWorker(app)
        await worker.begin()
        await worker.worker.pruner.run_once()
        await worker.run_pending()
        assert await job.result() == 42
        await worker.end()


@pytest.mark.asyncio
async def test_a_plain_role_that_owns_only_the_schema_can_migrate_and_work(
    connection: psycopg.Connection, empty_database_url: str, role: str
) -> None:
    connection.execute(sql.SQL("create schema trueup authorization {}").format(sql.Identifier(role)))
    await work_as(as_role(empty_database_url, role))


@pytest.mark.asyncio
async def test_a_plain_role_that_may_create_schemas_can_migrate_and_work(
    connection: psycopg.Connection, empty_database_url: str, role: str
) -> None:
    names = sql.Identifier(connection.info.dbname), sql.Identifier(role)
    connection.execute(sql.SQL("grant create on database {} to {}").format(*names))
    await work_as(as_role(empty_database_url, role))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_an_older_major_of_postgresql_can_be_migrated_and_worked_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, major=16, settings={"fsync": "off"}) as cluster:
        await work_as(cluster.url())


def test_two_migrations_with_one_number_are_refused(tmp_path: Path) -> None:
    for name in ("0001_initial.sql", "0002_pre_one.sql", "0002_pre_two.sql"):
        (tmp_path / name).write_text("select 1;")
    with pytest.raises(ValueError, match="two migrations have the same number"):
        all_steps(tmp_path)
