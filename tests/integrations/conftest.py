from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from apps.servers.valkey import Valkey
from trueup.integrations.webhooks import resolver
from trueup.integrations.webhooks.resolver import Resolver


@pytest.fixture(autouse=True)
def fresh_resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """What one test's names resolved to, or did not, is forgotten in the next."""
    fresh = Resolver()
    monkeypatch.setattr(resolver, "SHARED", fresh)
    return fresh


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server that may be stopped."""
    with Valkey() as server:
        yield server


@pytest.fixture
def three() -> Iterator[list[Valkey]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Valkey()) for _ in range(3)]
