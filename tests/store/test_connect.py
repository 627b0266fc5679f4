"""Connections, and whether statements are prepared on the server."""

from __future__ import annotations

import pytest

from trueup import App

pytestmark = pytest.mark.asyncio


async def prepared_statements(app: App) -> int:
    """How many the one connection of the pool has after the same job was enqueued ten times."""

    @app.job
    async def send(n: int) -> None: ...

    async with app:
        for number in range(10):
            await send.enqueue(number)
        async with app.store.pool.use() as connection:
            rows = await (await connection.execute("select count(*) from pg_prepared_statements")).fetchall()
    return int(rows[0][0])


async def test_nothing_is_prepared_unless_asked_for_so_that_any_pooler_may_stand_in_between(database_url: str) -> None:
    assert await prepared_statements(App(database_url, pool_size=1)) == 0


async def test_statements_that_come_again_are_prepared_on_request(database_url: str) -> None:
    assert await prepared_statements(App(database_url, pool_size=1, prepare=True)) > 0
