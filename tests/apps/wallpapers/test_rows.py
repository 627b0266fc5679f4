"""The table: made by many at once, and what it refuses by itself."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import errors

from apps.wallpapers import rows
from tests.apps.wallpapers.studio import COMPLETE, Studio
from trueup import App

pytestmark = pytest.mark.asyncio


async def test_many_processes_may_make_the_table_at_once(app: App) -> None:
    async def make() -> None:
        async with app.transaction() as tx:
            await rows.make_tables(tx)

    await asyncio.gather(*(make() for _ in range(8)))
    async with app.transaction() as tx:
        made = await rows.create(tx, "ada", None)
        assert await rows.get(tx, made.id) == made


async def test_the_database_refuses_to_publish_what_is_not_known(studio: Studio) -> None:
    for name in COMPLETE:
        with pytest.raises(errors.CheckViolation, match="wallpapers_described"):
            await studio.row("processing", **{**COMPLETE, name: None})
    await studio.row("stored")  # which is allowed: what is not known is read from the object before it is published


async def test_the_database_refuses_one_picture_twice_for_one_user(studio: Studio) -> None:
    await studio.row("completed", **COMPLETE)
    for state in ("stored", "processing", "completed"):
        with pytest.raises(errors.UniqueViolation, match="wallpapers_content"):
            await studio.row(state, **COMPLETE)
    for state in ("uploading", "failed"):
        await studio.row(state, **COMPLETE)
    await studio.row("stored", **COMPLETE, user_id="grace")


@pytest.mark.parametrize("column", [{"upload_state": "gone"}, {"id": "x"}, {"upload_attempts": -1}])
async def test_the_database_refuses_what_cannot_be(studio: Studio, column: dict[str, object]) -> None:
    with pytest.raises(errors.CheckViolation):
        await studio.row(**{"state": "initiated", **column})  # type: ignore[arg-type]
