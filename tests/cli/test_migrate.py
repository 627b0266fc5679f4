from __future__ import annotations

import psycopg
import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def fresh(bare_cli: Cli, empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands on a database without the schema."""
    monkeypatch.setenv("TRUEUP_DATABASE_URL", empty_database_url)
    return bare_cli


def test_migrate_names_each_step_and_then_has_nothing_to_do(fresh: Cli) -> None:
    first = fresh("migrate")
    assert first.code == 0
    assert first.out.startswith("applied  0001 initial")
    assert fresh("migrate").out == "the schema is up to date\n"
    assert fresh("status").code == 0


def test_check_lists_what_is_pending_exits_with_1_and_changes_nothing(fresh: Cli) -> None:
    for _ in range(2):
        result = fresh("migrate", "--check")
        assert result.code == 1
        assert result.out.startswith("pending  0001_initial\n")
    fresh("migrate")
    assert fresh("migrate", "--check").code == 0


def test_the_json_of_migrate_is_one_document(fresh: Cli) -> None:
    assert fresh("migrate", "--check", "--json").json["pending"][0] == "0001_initial"
    done = fresh("migrate", "--json").json
    assert done["applied"][0] == "0001_initial"
    assert done["pending"] == []


def test_the_printed_script_brings_a_database_up_to_date(fresh: Cli, empty_database_url: str) -> None:
    script = fresh("migrate", "--sql").out
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute(script.encode())
    assert fresh("migrate", "--check").code == 0
    assert fresh("status").code == 0


def test_a_schema_of_another_name(fresh: Cli) -> None:
    assert fresh("migrate", "--schema", "jobs_of_shop").code == 0
    assert fresh("status", "--schema", "jobs_of_shop").code == 0
    assert fresh("status").code == 2


def test_sql_and_check_do_not_go_together(fresh: Cli) -> None:
    assert fresh("migrate", "--sql", "--check").code == 2


def test_check_refuses_a_schema_that_a_worker_refuses(fresh: Cli, empty_database_url: str) -> None:
    fresh("migrate")
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("insert into trueup.migrations (number, step, name) values (9999, 'only', 'of_tomorrow')")
    for options in ((), ("--pre-only",)):
        result = fresh("migrate", "--check", *options)
        assert result.code == 1
        assert "install the newer trueup" in result.out


def test_a_migration_says_who_is_in_the_way_and_gives_up_in_time(fresh: Cli, empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as other:
        other.execute("select pg_advisory_xact_lock(hashtextextended('trueup migrate trueup', 0))")
        result = fresh("migrate", "--wait", "100ms")
    assert result.code == 1
    assert "got no lock" in result.err
