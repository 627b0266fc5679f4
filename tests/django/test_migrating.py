"""trueup's schema through `manage.py migrate`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from django.test.utils import override_settings

from tests.support.django_project import leads_to
from tools.schema import DJANGO, django_migrations
from trueup.django.migrating import apply_steps
from trueup.store.db.migrate import Migrator, all_steps


def pending(url: str) -> list[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [step.name for step in Migrator(connection, "trueup").pending()]


def manage(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, no_color=True, **options)
    return out.getvalue()


def test_migrate_applies_every_step_to_a_new_database(empty: str) -> None:
    with pytest.raises(SystemExit):
        manage("migrate", check_unapplied=True)
    assert "Applying trueup.0001_initial... OK" in manage("migrate", "trueup", verbosity=1)
    assert pending(empty) == []
    assert "[ ]" not in manage("showmigrations", "trueup")
    assert "No migrations to apply" in manage("migrate", "trueup", verbosity=1)


def test_migrations_are_not_missing_any_model(empty: str) -> None:
    assert "No changes detected" in manage("makemigrations", "trueup", dry_run=True, check_changes=True)


def test_an_older_schema_gets_pending_steps_except_those_that_break_old_workers(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        early = [step for step in all_steps() if step.number < 8]
        Migrator(connection, "trueup", steps=early).migrate()
    manage("migrate", "trueup", verbosity=0)
    assert pending(empty) == ["0008_post_due_jobs", "0026_post_first_guess"]
    call_command("trueup", "migrate", "--json")
    assert pending(empty) == []


def test_a_migration_stops_at_its_own_step(empty: str) -> None:
    connection = connections["default"]
    connection.ensure_connection()
    steps = all_steps()
    Migrator(connection.connection, "trueup", steps=steps[:1]).migrate()
    apply_steps(connection, "0003_pre_leases")
    assert pending(empty)[0] == "0004_pre_rows"


def test_another_database_of_the_project_gets_no_schema(empty_database_url: str) -> None:
    with leads_to(empty_database_url, "other"):
        manage("migrate", "trueup", database="other", verbosity=0)
        assert len(pending(empty_database_url)) == len(all_steps())


class NoMigrations:
    def __contains__(self, label: str) -> bool:
        return True

    def __getitem__(self, label: str) -> None:
        return None


def test_a_project_that_switches_migrations_off_for_its_tests_has_the_schema(empty: str) -> None:
    with override_settings(MIGRATION_MODULES=NoMigrations()):
        manage("migrate", run_syncdb=True, verbosity=0)
    assert pending(empty) == []


def test_sqlmigrate_prints_the_steps(empty: str) -> None:
    text = manage("sqlmigrate", "trueup", "0001")
    assert "-- 0001_initial" in text
    assert "-- 0015_pre_walks" in text
    assert len(pending(empty)) == len(all_steps())


def test_a_migration_exists_for_every_step() -> None:
    made = {f"{name}.py": text for name, text in django_migrations(all_steps()).items()}
    there = {path.name: path.read_text() for path in Path(DJANGO).glob("0*.py") if path.name != "0001_initial.py"}
    assert there == made, "run `python -m tools.schema`"
