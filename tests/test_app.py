"""What an App does at its end."""

from __future__ import annotations

import pytest

from trueup import App

pytestmark = pytest.mark.asyncio


async def test_what_handlers_keep_open_is_closed_before_the_database_and_the_last_first(app: App) -> None:
    order: list[str] = []

    async def close(name: str) -> None:
        async with app.transaction() as tx:
            await tx.execute("select 1")
        order.append(name)

    app.on_close(lambda: close("first"))
    app.on_close(lambda: close("second"))
    await app.close()
    assert order == ["second", "first"]


async def test_it_is_closed_each_time_and_whatever_became_of_the_others(app: App) -> None:
    closed = 0

    async def close() -> None:
        nonlocal closed
        closed += 1

    async def fail() -> None:
        raise ConnectionError("it was gone")

    app.on_close(close)
    app.on_close(fail)
    store = await app.open()
    with pytest.raises(ConnectionError, match="it was gone"):
        await app.close()
    assert closed == 1
    assert store.pool is not (await app.open()).pool, "the store was closed, too"
    app._closed_with_us.remove(fail)
    await app.close()
    assert closed == 2


async def test_the_old_name_of_jobs_still_works_and_says_so(app: App) -> None:
    with pytest.warns(DeprecationWarning, match="app.jobs"):
        old = app.operations
    assert type(old) is type(app.jobs)
