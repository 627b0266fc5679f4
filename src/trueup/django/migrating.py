"""trueup's schema through `manage.py migrate`: Django records the migrations, and trueup's migrator applies them.

On a database without the schema the first migration applies every step that this release has; those after it then find
nothing to do. On one that has it, a migration applies what is pending up to its step, and no `post` step: old workers may
still run. `manage.py trueup migrate` applies those.
"""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from trueup.django import get_app
from trueup.store.db.migrate import Migrator, Step, all_steps

LABEL = "trueup"


class ApplySteps(Operation):
    """Bring trueup's schema to a step."""

    reversible = False
    reduces_to_sql = True

    def __init__(self, step: str) -> None:
        self.step = step

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models over trueup's tables are unmanaged."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if not is_home(connection.alias):
            return
        connection.ensure_connection()
        if schema_editor.collect_sql:
            schema_editor.collected_sql.append(_migrator(connection, self.step).sql() or "-- nothing is pending")
            return
        apply_steps(connection, self.step)

    def describe(self) -> str:
        return f"Brings trueup's schema to {self.step}"

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.step], {}


def is_home(alias: str) -> bool:
    """Whether trueup's tables belong into this database."""
    return alias == get_app().alias and bool(router.allow_migrate(alias, LABEL))


def apply_steps(connection: Any, through: str | None = None) -> list[Step]:
    """Through Django's own connection, which is in autocommit mode: each step is a transaction of its own."""
    migrator = _migrator(connection, None)
    if through is None or not migrator.applied():
        return migrator.migrate()
    migrator = _migrator(connection, through)
    return migrator.migrate(post=migrator.steps[-1].step == "only")


def _migrator(connection: Any, through: str | None) -> Migrator:
    app = get_app()
    steps = all_steps()
    if through is not None:
        end = next(step for step in steps if step.name == through)
        steps = [step for step in steps if step.number < end.number or step is end]
    return Migrator(connection.connection, app.settings.schema, app.events, steps)


def after_migrate(using: str, **_: Any) -> None:
    """Prepares a test database: creates the schema where migrations are switched off, and closes our sessions at the end."""
    from django.db import connections

    if not is_home(using):
        return
    connection = connections[using]
    _end_sessions_before_destroying(connection.creation)
    if MigrationLoader.migrations_module(LABEL)[0] is None:  # test settings switch migrations off for speed
        connection.ensure_connection()
        if not connection.in_atomic_block:
            apply_steps(connection)


def _end_sessions_before_destroying(creation: Any) -> None:
    """Close what tests have left open in the App before the runner drops their database, as it does with Django's own pool.

    PostgreSQL drops no database that has sessions. Only the server can end those of an event loop that has ended.
    """
    if "_destroy_test_db" in vars(creation):
        return
    destroy = creation._destroy_test_db

    def ending(name: str, *args: Any, **options: Any) -> None:
        get_app().close_sync()
        with creation._nodb_cursor() as cursor:
            cursor.execute(
                "select pg_catalog.pg_terminate_backend(pid, 5000) from pg_catalog.pg_stat_activity "
                "where datname = %s and usename = session_user and application_name like 'trueup %%'",
                [name],
            )
        destroy(name, *args, **options)

    creation._destroy_test_db = ending
