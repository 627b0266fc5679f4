"""The applications' tables: made once by many, and not touched by a start beside somebody who writes."""

from __future__ import annotations

import asyncio

import pytest

from apps.addresses import books
from apps.birthdays import people
from apps.pulse import database
from apps.wallpapers import rows
from trueup import App, ConfigError

pytestmark = pytest.mark.asyncio

MAKERS = {
    "birthdays": (people.make_tables, "events"),
    "addresses": (books.make_tables, "transactions"),
    "wallpapers": (rows.make_tables, "wallpapers"),
    "pulse": (database.make_tables, "tasks"),
}


@pytest.mark.parametrize("name", MAKERS)
async def test_many_make_the_tables_at_once_and_a_later_start_waits_for_nobody(app: App, name: str) -> None:
    make_tables, table = MAKERS[name]

    async def start() -> None:
        async with app.transaction() as tx:
            await tx.execute("set local lock_timeout = '2s'")
            await make_tables(tx)

    await asyncio.gather(*(start() for _ in range(5)))
    async with app.transaction() as writing:
        await writing.execute(f"lock table {table} in row exclusive mode".encode())
        await start()


async def test_another_schema_is_applied(app: App) -> None:
    async with app.transaction() as tx:
        await people.make_tables(tx)
        await tx.execute("comment on table events is 'schema of an earlier release'")
        await tx.execute("drop index events_due")
        await people.make_tables(tx)
        cursor = await tx.execute("select to_regclass('events_due') is not null")
        assert await cursor.fetchone() == (True,)


@pytest.mark.parametrize(("first", "second"), [("birthdays", "pulse"), ("pulse", "birthdays")])
async def test_a_database_with_another_applications_tables_is_refused_in_words(
    app: App, first: str, second: str
) -> None:
    async with app.transaction() as tx:
        await MAKERS[first][0](tx)
    with pytest.raises(ConfigError, match="give each application its own schema"):
        async with app.transaction() as tx:
            await MAKERS[second][0](tx)
