"""Alembic: autogenerate leaves trueup's schema alone, and a revision brings it up to date."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg import Connection

from trueup.dsn import libpq_url
from trueup.errors import ConfigError
from trueup.store.db.migrate import Migrator

IncludeName = Callable[[Any, str, Any], bool]


def leave_out(schema: str = "trueup", also: IncludeName | None = None) -> IncludeName:
    """For `context.configure(include_name=…)`: objects in trueup's schema are neither compared nor dropped.

    `also` is an `include_name` of your own, which decides about the rest.
    """

    def include_name(name: Any, type_: str, parent_names: Any) -> bool:
        ours = name if type_ == "schema" else (parent_names or {}).get("schema_name")
        return ours != schema and (also is None or also(name, type_, parent_names))

    return include_name


def upgrade(op: Any, *, schema: str = "trueup", post: bool = True) -> list[str]:
    """Bring trueup's schema to this release's version, inside a revision: `upgrade(op)`. Returns the applied steps.

    A connection of its own applies them, each in a transaction of its own, as `trueup migrate` does: some steps cannot run inside
    another transaction. So they stay if the revision fails, and are not applied twice. `post=False` leaves out the steps for which
    old workers must be gone.
    """
    if op.get_context().as_sql:
        raise ConfigError(
            "offline mode: the steps depend on those applied already; get them with `trueup migrate --sql`"
        )
    url = libpq_url(op.get_bind().engine.url.render_as_string(hide_password=False))
    with Connection.connect(url, autocommit=True) as connection:
        return [step.name for step in Migrator(connection, schema).migrate(post=post)]
