from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from apps.servers.valkey import Valkey


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server that may be stopped."""
    with Valkey() as server:
        yield server


@pytest.fixture
def three() -> Iterator[list[Valkey]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Valkey()) for _ in range(3)]
