"""Applications side by side in one database: each has its own schemas, and none takes anything of another's for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from apps.servers.valkey import Valkey
from tests.apps.processes import QUICK, Town, town
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import wait_until
from trueup import App, ConfigError, DatabaseUnavailable
from trueup.web.database import prepare_database
from trueup.web.service import own_app

SOON = 30  # seconds; what is waited for takes two or three
CONFIGURED = {
    "addresses": {
        "RECONCILIATION_PROVIDERS": "ethereum=http://127.0.0.1:1",
        "RECONCILIATION_SCHEDULER_ENABLED": "true",
        "RECONCILIATION_WORKER_ENABLED": "true",
    },
    "birthdays": {
        "BIRTHDAYS_WEBHOOK_URL": "http://127.0.0.1:1/hook",
        "BIRTHDAYS_WEBHOOK_ALLOW": "127.0.0.1",
        "BIRTHDAYS_EVERY": "200ms",
    },
    "payments": {"PAYMENT_REQUEST_CHAINS": "eip155:1=http://127.0.0.1:1"},
    "pulse": {"PULSE_REDIS_URL": "redis://127.0.0.1:1/0", "PULSE_HEALTH_CHECK_SCHEDULE": "*/2 * * * * *"},
    "wallpapers": {
        "S3_ENDPOINT_URL": "http://127.0.0.1:1",
        "S3_ACCESS_KEY_ID": "local",
        "S3_SECRET_ACCESS_KEY": "local",
        "NATS_URL": "nats://127.0.0.1:1",
    },
}
TABLES = {"payments": "app"}  # where its tables are, if not in a schema of the application's name
OWN = {name: value for name, value in QUICK.items() if name not in ("TRUEUP_SCHEMA", "TRUEUP_SEARCH_PATH")}


def trueup(name: str, place: Town, *arguments: str) -> str:
    """The command line, told which application it is about, and nothing else."""
    ran = place.start(*arguments, module="trueup.cli", TRUEUP_APP=f"apps.{name}.app:app")
    assert ran.ended() == 0, ran.said
    return ran.said


@pytest.fixture
def configured(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment has everything that any application needs; the URL of the database they share."""
    for name in ("TRUEUP_SCHEMA", "TRUEUP_SEARCH_PATH", "TRUEUP_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    for variables in CONFIGURED.values():
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRUEUP_DATABASE_URL", empty_database_url)
    return empty_database_url


@pytest.mark.asyncio
async def test_five_applications_share_a_database_and_no_table(configured: str) -> None:
    services: dict[str, Any] = {
        name: import_module(f"apps.{name}.service").build_configured() for name in sorted(CONFIGURED)
    }
    try:
        for service in services.values():
            await asyncio.to_thread(service.app.store.migrate)
        for _ in range(2):  # a second start finds what the first one made
            await asyncio.gather(*(service.prepare() for service in services.values()))
    finally:
        for service in services.values():
            await service.close()
    with psycopg.connect(configured) as connection:
        found = connection.execute(
            "select table_schema, count(*) from information_schema.tables"
            " where table_schema not in ('pg_catalog', 'information_schema') group by 1"
        ).fetchall()
    own = {TABLES.get(name, name) for name in CONFIGURED} | {f"trueup_{name}" for name in CONFIGURED}
    assert {schema for schema, _ in found} == own


@pytest.fixture
def towns(empty_database_url: str, tmp_path: Path) -> Iterator[dict[str, Town]]:
    """Birthdays and pulse, each of which has a table `users`, with nothing to keep them apart but their names."""
    with ExitStack() as stack:
        redis = stack.enter_context(Valkey())
        made = {}
        for name in ("birthdays", "pulse"):
            own = CONFIGURED[name] | ({"PULSE_REDIS_URL": redis.url, "PULSE_LOCK_TTL": "2s"} if name == "pulse" else {})
            (tmp_path / name).mkdir()
            environment = {**own, "TRUEUP_DATABASE_URL": empty_database_url, "TRUEUP_RETIRE_AFTER": "1s"}
            made[name] = stack.enter_context(town(f"apps.{name}", environment, tmp_path / name))
            made[name].environment = {
                key: value for key, value in made[name].environment.items() if key not in QUICK or key in OWN
            }
        yield made


@pytest.mark.proof(beside="test_five_applications_share_a_database_and_no_table")
@pytest.mark.slow
def test_two_applications_work_at_once_and_neither_retires_the_others_schedules(
    towns: dict[str, Town], empty_database_url: str
) -> None:
    for name, place in towns.items():
        trueup(name, place, "migrate")
    workers = {name: place.start("worker") for name, place in towns.items()}
    with psycopg.connect(empty_database_url, autocommit=True) as database:

        def one(query: str) -> Any:
            row = database.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

        wait_until(lambda: one("select to_regclass('pulse.runs') is not null"), "pulse has its tables", timeout=SOON)
        wait_until(lambda: one("select to_regclass('birthdays.events') is not null"), "so has birthdays", timeout=SOON)
        database.execute("insert into pulse.projects (name) values ('Apollo')")
        database.execute(
            "with u as (insert into birthdays.users (first_name, last_name, date_of_birth, timezone)"
            " values ('Ada', 'L', '1990-01-01', 'UTC') returning id)"
            " insert into birthdays.events (user_id, target_year, target_timestamp_utc) select id, 2026, now() from u"
        )
        wait_until(lambda: one("select health_score is not null from pulse.projects"), "it is checked", timeout=SOON)
        wait_until(
            lambda: one("select status from birthdays.events") == "FAILED", "sending was tried, in vain", timeout=SOON
        )
        ran = one("select count(*) from pulse.runs where ended_at is not null")
        wait_until(
            lambda: one("select count(*) from pulse.runs where ended_at is not null") >= ran + 2,
            "its schedule goes on, longer than it would take to be retired",
            timeout=SOON,
        )
    assert {name: worker.stop() for name, worker in workers.items()} == dict.fromkeys(workers, 0)
    assert "health-check" in trueup("pulse", towns["pulse"], "schedules", "list")
    assert "send_birthday_message" in trueup("birthdays", towns["birthdays"], "reconcilers", "list")


def test_an_unprepared_database_is_answered_with_the_command_that_prepares_it(
    empty_database_url: str, tmp_path: Path
) -> None:
    with town(
        "apps.payments", {**CONFIGURED["payments"], "TRUEUP_DATABASE_URL": empty_database_url}, tmp_path
    ) as place:
        place.environment = {key: value for key, value in place.environment.items() if key not in QUICK or key in OWN}
        refused = place.start("serve")
        assert refused.ended() == 2
    assert "run `TRUEUP_SCHEMA=trueup_payments trueup migrate`" in refused.said


# -- the schema is really the one that is meant -----------------------------------------------------------------------


async def nothing(_: Any) -> None:
    pass


async def prepared(app: App) -> str:
    """Where its tables go."""
    try:
        await asyncio.to_thread(app.store.migrate)
        await prepare_database(app, nothing)
        async with app.transaction() as tx:
            return str((await (await tx.execute("select current_schema()")).fetchone() or [None])[0])
    finally:
        await app.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "schema"),
    [({}, "shop"), ({"tables": "goods"}, "goods"), ({"search_path": "other,public"}, "other")],
    ids=["its name", "another", "configured"],
)
async def test_an_application_has_a_schema_of_its_own(configured: str, settings: dict[str, Any], schema: str) -> None:
    assert await prepared(own_app("shop", **settings)) == schema


@pytest.mark.asyncio
async def test_a_role_that_may_not_create_the_schema_is_told_what_to_run(configured: str) -> None:
    with psycopg.connect(configured, autocommit=True) as connection:
        connection.execute("drop role if exists clerk")
        connection.execute("create role clerk login")
        connection.execute("create schema trueup_shop authorization clerk")
        as_clerk = make_conninfo(configured, user="clerk")
        try:
            with pytest.raises(ConfigError, match="create schema shop authorization clerk"):
                await prepared(own_app("shop", database_url=as_clerk))
            connection.execute("create schema shop authorization clerk")
            assert await prepared(own_app("shop", database_url=as_clerk)) == "shop"
        finally:
            connection.execute("drop owned by clerk cascade")
            connection.execute("drop role clerk")


@pytest.mark.asyncio
async def test_a_search_path_that_another_place_sets_is_not_taken_for_the_applications(configured: str) -> None:
    with pytest.raises(ConfigError, match="would be created in the schema 'public' instead of 'shop'"):
        await prepared(own_app("shop", database_url=f"{configured}&options=-csearch_path%3Dpublic"))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_behind_a_pooler_the_role_has_the_search_path(configured: str) -> None:
    database = str(conninfo_to_dict(configured)["dbname"])
    with PgBouncer(configured) as pooler:
        with pytest.raises(DatabaseUnavailable, match="set TRUEUP_SEARCH_PATH=role"):
            await prepared(own_app("shop", database_url=pooler.url(database)))
        with psycopg.connect(configured, autocommit=True) as connection:
            connection.execute("create schema shop")
            connection.execute(f"alter database {database} set search_path = shop".encode())
        assert await prepared(own_app("shop", database_url=pooler.url(database), search_path="role")) == "shop"
