from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.desk import Desk
from tests.support.database import TestServer
from tests.support.debian_server import DebianServer
from tests.support.servers import Servers
from trueup.store.store import Store


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


@pytest.fixture(scope="session")
def servers(server: TestServer) -> Iterator[Servers]:
    servers = Servers(server)
    yield servers
    servers.close()


@pytest.fixture
def debian(servers: Servers) -> DebianServer:
    return servers.debian
