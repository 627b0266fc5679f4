"""The fixture for coroutine tests; the plugin registers it where pytest-asyncio is active."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from trueup.testing.plugin import harness_of

if TYPE_CHECKING:
    from trueup.testing.clock import ManualClock
    from trueup.testing.harness import Harness


@pytest_asyncio.fixture
async def trueup_async(
    request: pytest.FixtureRequest, trueup_database_url: str, trueup_clock: ManualClock
) -> AsyncIterator[Harness]:
    """A Harness for coroutine tests."""
    with harness_of(request, trueup_database_url, trueup_clock) as harness:
        try:
            yield harness
        finally:
            await harness.close()
