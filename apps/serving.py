"""What the applications' services have in common: a database of their own, and whether it can be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from trueup import App

SHARED = Path(".trueup")


def own_app(name: str, **settings: Any) -> App:
    """An App. Its embedded PostgreSQL, if it has one, is this application's alone, unless a directory is configured.

    In a database that two applications share, each would take the other's schedules for ones that were removed from its code.
    """
    app = App(**settings)
    if app.settings.data_dir.name == SHARED.name:
        app = App(**settings, data_dir=app.settings.data_dir / name)
    return app


async def own_database(app: App) -> str:
    """Where its database is, for those who connect to it by themselves."""
    async with app.transaction() as tx:
        return make_conninfo(**tx.info.get_parameters(), password=tx.info.password or None)


async def database_down(app: App) -> dict[str, str]:
    """For /readyz of an application that needs nothing but its database."""
    try:
        async with app.transaction() as tx:
            await tx.execute("select 1")
    except Exception as error:
        return {"database": type(error).__name__}
    return {}
