from __future__ import annotations

import re
import subprocess

import psycopg

from tests.support.database import TestServer
from tools.schema import STAND_IN, TARGET, generate
from trueup.store.db.load import compose
from trueup.store.db.migrate import DIRECTORY, Migrator


def dump(server: TestServer, url: str) -> str:
    """The schema as pg_dump sees it, without the lines that differ from run to run."""
    command = [server.cluster.programs / "pg_dump", "--schema-only", "--no-owner", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    return re.sub(r"^\\(un)?restrict .*$", "", text, flags=re.MULTILINE)


def test_schema_sql_is_what_the_tool_makes_of_the_migrations(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        assert TARGET.read_text() == generate(connection), "run `python -m tools.schema`"


def test_schema_sql_and_the_migrations_give_the_same_database(server: TestServer) -> None:
    with server.database(template="template1") as migrated, server.database(template="template1") as applied:
        with psycopg.connect(migrated, autocommit=True) as connection:
            Migrator(connection, STAND_IN).migrate()
        with psycopg.connect(applied, autocommit=True) as connection:
            connection.execute(compose((DIRECTORY / "schema.sql").read_text(), STAND_IN).encode())
        assert dump(server, applied) == dump(server, migrated)
