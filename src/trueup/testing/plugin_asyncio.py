"""The fixture for coroutine tests, as pytest-asyncio wants it."""

from __future__ import annotations

import pytest_asyncio

from trueup.testing.plugin import coroutine_harness

trueup_async = pytest_asyncio.fixture(coroutine_harness, name="trueup_async")
