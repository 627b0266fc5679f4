"""Alembic with a real database: our schema is left out of autogenerate, and a revision brings it up to date."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from trueup import ConfigError
from trueup.integrations.alembic import leave_out, upgrade
from trueup.store.db.migrate import Migrator


def differences(url: str, **options: Any) -> list[Any]:
    engine = sa.create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
        found = compare_metadata(context, sa.MetaData())
    engine.dispose()
    return found


def test_autogenerate_leaves_our_schema_alone(database_url: str) -> None:
    assert differences(database_url), "without it every table of ours would be dropped"
    assert differences(database_url, include_name=leave_out()) == []
    asked: list[Any] = []
    differences(database_url, include_name=leave_out(also=lambda *given: not asked.append(given)))
    assert asked
    assert not any("trueup" in str(given) for given in asked)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("driver", "options"),
    [("psycopg", {}), ("asyncpg", {}), ("asyncpg", {"ssl": "prefer", "prepared_statement_cache_size": "0"})],
    ids=["psycopg", "asyncpg", "asyncpg with options that libpq does not know"],
)
async def test_a_revision_brings_the_schema_up_to_date_once(
    empty_database_url: str, driver: str, options: dict[str, str]
) -> None:
    url = make_url(empty_database_url).set(drivername=f"postgresql+{driver}").update_query_dict(options)
    engine = create_async_engine(url)
    applied = []
    for _ in range(2):
        async with engine.begin() as connection:
            await connection.execute(sa.text("select 1"))  # Alembic's transaction is open
            operations = await connection.run_sync(lambda sync: Operations(MigrationContext.configure(sync)))
            applied.append(await connection.run_sync(lambda _, op=operations: upgrade(op)))
    await engine.dispose()
    assert applied[0][0].startswith("0001")
    assert applied[1] == []
    with psycopg.connect(empty_database_url) as look:
        assert Migrator(look, "trueup").refusal() is None


def test_offline_mode_says_what_to_do_instead() -> None:
    offline = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True})
    with pytest.raises(ConfigError, match="trueup migrate --sql"):
        upgrade(Operations(offline))
