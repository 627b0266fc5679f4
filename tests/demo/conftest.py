from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.demo.demo import Demo
from tests.support.memory import in_memory


@pytest.fixture
def books(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A database with the tables of the application and of the demo, and nothing in them."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute((files("apps.birthdays") / "schema.sql").read_bytes())
        connection.execute((files("trueup.demo") / "tables.sql").read_bytes())
        yield connection


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name that others may pass through, as PostgreSQL must where it cannot run as ourselves."""
    directory = Path(tempfile.mkdtemp(prefix="trueup-test-", dir=in_memory()))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start_demo(place: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def start(*arguments: str, program: str | None = None) -> Demo:
        started.append(Demo(place, arguments, program))
        return started[-1]

    yield start
    for demo in started:
        demo.end()
