"""Where an application's database is, for those who connect to it by themselves."""

from __future__ import annotations

from psycopg.conninfo import make_conninfo

from trueup import App


async def own_database(app: App) -> str:
    async with app.transaction() as tx:
        return make_conninfo(**tx.info.get_parameters(), password=tx.info.password or None)
