"""The fixture for coroutine tests where anyio's plugin runs them; without any plugin, pytest says that it needs one."""

from __future__ import annotations

import pytest

from trueup.testing.plugin import coroutine_harness

trueup_async = pytest.fixture(coroutine_harness, name="trueup_async")
