from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.user import FAST, User
from tests.support.memory import in_memory
from trueup.embedded.cluster import Cluster
from trueup.embedded.embedded import EmbeddedPostgres


@contextmanager
def temporary_place(within: Path | None = None) -> Iterator[Path]:
    """A directory with a short name that others may pass through, as PostgreSQL must where it cannot run as ourselves."""
    directory = Path(tempfile.mkdtemp(prefix="trueup-test-", dir=within))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory, where it can be: making a data directory takes half the time there."""
    with temporary_place(in_memory()) as directory:
        yield directory


@pytest.fixture
def place_for_programs() -> Iterator[Path]:
    """Never in memory: nothing may be executed there on some machines."""
    with temporary_place() as directory:
        yield directory


@pytest.fixture(scope="session")
def used_cluster() -> Iterator[Cluster]:
    with temporary_place(in_memory()) as directory:
        cluster = Cluster(directory / "used", settings=FAST)
        yield cluster
        cluster.stop("immediate")


@pytest.fixture
def cluster(used_cluster: Cluster) -> Cluster:
    """A running server. Tests may stop and kill it: the next one finds it started again."""
    used_cluster.start()
    return used_cluster


@pytest.fixture
def make_cluster(place: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes new clusters that do not wait for the disk, and ends their servers after the test."""
    made: list[Cluster] = []

    def make(directory: Path = place / "new", settings: dict[str, str] | None = None, **options: Any) -> Cluster:
        made.append(Cluster(directory, settings={**FAST, **(settings or {})}, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop("immediate")


@pytest.fixture
def home(place: Path) -> Iterator[Path]:
    """The directory of a shared server, stopped after the test whatever became of its users and its keeper."""
    directory = place / ".trueup"
    yield directory
    EmbeddedPostgres(directory).stop()


@pytest.fixture
def shared(home: Path) -> Iterator[EmbeddedPostgres]:
    """A user of the server of `home` within this process, not yet arrived."""
    embedded = EmbeddedPostgres(home, settings=FAST, linger=timedelta(0))
    yield embedded
    embedded.release()


@pytest.fixture
def other(home: Path) -> Iterator[EmbeddedPostgres]:
    """Another one, who shares nothing with the first but the directory."""
    embedded = EmbeddedPostgres(home, settings=FAST, linger=timedelta(0))
    yield embedded
    embedded.release()


@pytest.fixture
def start_user(home: Path) -> Iterator[Callable[[], User]]:
    """Starts processes that use the server of `home`."""
    started: list[User] = []

    def start() -> User:
        started.append(User(home))
        return started[-1]

    yield start
    for user in started:
        user.kill()
