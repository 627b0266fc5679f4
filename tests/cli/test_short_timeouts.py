"""Commands for a role whose sessions have the shortest timeouts there are: each works, or says which timeout ended it."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.cli.conftest import Cli

# How PostgreSQL names each when it ends something because of it.
NAMES = {
    "statement_timeout": "statement timeout",
    "lock_timeout": "lock timeout",
    "idle_in_transaction_session_timeout": "idle-in-transaction timeout",
    "transaction_timeout": "transaction timeout",
}
BROKEN = (
    "server closed the connection",
    "connection to the server",
    "connection is",
)  # seen before the reason was read
COMMANDS = ("status", "jobs list", "schedules list", "recovery", "doctor", "migrate --sql")


def shorten(url: str, setting: str, value: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), sql.Literal(value))
        )


@pytest.mark.parametrize("setting", NAMES)
def test_commands_work_or_name_the_setting(cli: Cli, database_url: str, setting: str) -> None:
    shorten(database_url, setting, "20ms")
    for command in COMMANDS:
        result = cli(*command.split())
        assert "error:" not in result.err or any(text in result.err for text in (NAMES[setting], *BROKEN)), command
