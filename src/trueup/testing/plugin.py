"""The pytest plugin: fixtures for an App on a database of its own, with a clock that stands still.

pytest loads this for every project that has trueup installed, so nothing of trueup is imported before a fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trueup.testing.clock import ManualClock
    from trueup.testing.databases import Databases
    from trueup.testing.harness import Harness, SyncHarness


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("trueup_app", "the App that trueup's fixtures use, as module:attribute; none: a new one per test")
    parser.addini("trueup_database_url", "the server for test databases; none: an embedded PostgreSQL")


@pytest.fixture(scope="session")
def trueup_databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """Where databases of tests are made: TRUEUP_TEST_DATABASE_URL, trueup_database_url in the ini file, or an embedded one."""
    from trueup.testing.databases import databases

    url = os.environ.get("TRUEUP_TEST_DATABASE_URL") or request.config.getini("trueup_database_url") or None
    with databases(url, tmp_path_factory.mktemp("trueup")) as found:
        yield found


@pytest.fixture
def trueup_database_url(trueup_databases: Databases) -> Iterator[str]:
    """A migrated database that this test has to itself."""
    with trueup_databases.database() as url:
        yield url


@pytest.fixture
def trueup_clock() -> ManualClock:
    """The time of the App in this test: noon on 1 June 2026 until a test moves it."""
    from trueup.testing.clock import ManualClock

    return ManualClock()


@contextmanager
def harness_of(request: pytest.FixtureRequest, url: str, clock: ManualClock) -> Iterator[Harness]:
    from trueup.app import App
    from trueup.cli.loading import load_app
    from trueup.testing.harness import Harness, rebound

    place = request.config.getini("trueup_app")
    app = load_app(place) if place else App(url, clock=clock)
    with rebound(app, url, clock):
        yield Harness(app, clock)


@pytest.fixture
def trueup_sync(
    request: pytest.FixtureRequest, trueup_database_url: str, trueup_clock: ManualClock
) -> Iterator[SyncHarness]:
    """A Harness for tests that are plain functions."""
    from trueup.testing.harness import SyncHarness

    with harness_of(request, trueup_database_url, trueup_clock) as harness, closing(SyncHarness(harness)) as sync:
        yield sync


async def coroutine_harness(
    request: pytest.FixtureRequest, trueup_database_url: str, trueup_clock: ManualClock
) -> AsyncIterator[Harness]:
    """A Harness for coroutine tests: the fixture `trueup_async`."""
    with harness_of(request, trueup_database_url, trueup_clock) as harness:
        try:
            yield harness
        finally:
            await harness.close()


def pytest_configure(config: pytest.Config) -> None:
    """Coroutine tests have a fixture, too: of the plugin that runs them."""
    runner = "asyncio" if config.pluginmanager.has_plugin("asyncio") else "anyio"
    config.pluginmanager.register(import_module(f"trueup.testing.plugin_{runner}"), "trueup_async")
