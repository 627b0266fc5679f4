from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from trueup.embedded.cluster import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    cluster.create()
    cluster.start()
    yield cluster
    cluster.stop("immediate")


@pytest.fixture
def direct(cluster: Cluster) -> Iterator[psycopg.Connection]:
    """A connection that no fault reaches, and an empty table `history (id int)`."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("drop table if exists history")
        connection.execute("create table history (id int)")
        yield connection
