from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from apps.servers.valkey import Valkey
from tests.leases.keepers import Advisory, Keeper, Rows, Servers


@pytest.fixture(scope="session")
def valkeys() -> Iterator[list[Valkey]]:
    """Three servers that nobody stops."""
    with ExitStack() as stack:
        yield [stack.enter_context(Valkey()) for _ in range(3)]


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server that may be stopped."""
    with Valkey() as server:
        yield server


@pytest.fixture(params=["postgres", "advisory", "redis", "quorum"])
def keeper(request: pytest.FixtureRequest, database_url: str) -> Iterator[Keeper]:
    keeper: Keeper
    match request.param:
        case "postgres":
            keeper = Rows(database_url)
        case "advisory":
            keeper = Advisory(database_url)
        case which:
            servers: list[Valkey] = request.getfixturevalue("valkeys")
            keeper = Servers(database_url, servers if which == "quorum" else servers[:1])
    yield keeper
    keeper.close()
