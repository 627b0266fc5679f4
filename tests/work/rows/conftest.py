from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.work.rows.field import Field
from trueup import App


@pytest_asyncio.fixture
async def field(still: App) -> AsyncIterator[Field]:
    """Where time stands still until `clock` is moved."""
    field = Field(still)
    await field.prepare()
    yield field
    await field.close()


@pytest_asyncio.fixture
async def live(app: App) -> AsyncIterator[Field]:
    """Where time passes."""
    field = Field(app)
    await field.prepare()
    yield field
    await field.close()
