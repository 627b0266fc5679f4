"""Every test that needs PostgreSQL gets a database of its own, cloned from a migrated template on a real server."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from tests.support import reaper
from tests.support.database import TestServer
from tests.support.memory import in_memory
from trueup import App, program
from trueup.store.store import Store
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytest_plugins = ["tests.support.matrix"]


# A busy machine is slow, and that is no mistake of the code under test.
settings.register_profile("trueup", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("trueup")


def pytest_configure() -> None:
    gc.disable()  # until all tests are collected: what is made meanwhile stays
    # A script's `&` and nohup ignore these, and every program that a test starts would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if sys.platform == "linux":
        reaper.watch()
    if place := in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))  # what `tmp_path` is below


LONG_ONES = ("tests/demo/", "/test_demo.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-of-each", action="store_true", help="of each test function, run the first case only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first: one that begins last is waited for alone."""
    items.sort(key=lambda item: not any(part in item.nodeid for part in LONG_ONES))
    if config.getoption("--one-of-each"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        chosen = set(map(id, first.values()))
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = [item for item in items if id(item) in chosen]


def pytest_collection_finish() -> None:
    gc.freeze()  # ten thousand tests that stay until the end, which every full collection would walk through
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    """What a program's `main` sets for its process ends with the test: loggers, and how commands in texts are typed. Others run in
    this process later."""
    place, hook = program.place, sys.excepthook
    before = {each: (list(each.handlers), each.level, each.propagate, each.disabled) for each in _loggers()}
    ran = yield
    program.place, sys.excepthook = place, hook
    logging.captureWarnings(False)
    if sentry := sys.modules.get("sentry_sdk"):
        sentry.get_global_scope().set_client(None)  # it would go on to add variables to every process that starts
    for each in _loggers():
        handlers, level, propagate, disabled = before.get(each, ([], logging.NOTSET, True, False))
        each.handlers[:], each.propagate, each.disabled = handlers, propagate, disabled
        if each.level != level:
            each.setLevel(level)
    return ran


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(each for each in known if isinstance(each, logging.Logger))]


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    with (
        tempfile.TemporaryDirectory(prefix="trueup-pg-", dir=in_memory()) as directory,
        TestServer(Path(directory), stays_connected=True) as server,
    ):
        yield server


@pytest.fixture
def database_url(server: TestServer) -> Iterator[str]:
    """A migrated database that nobody else uses."""
    with server.database() as url:
        yield url


@pytest.fixture
def empty_database_url(server: TestServer) -> Iterator[str]:
    """A database without anything of trueup in it."""
    with server.database(template="template1") as url:
        yield url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def app(database_url: str) -> AsyncIterator[App]:
    """An App on the database's own clock."""
    app = App(database_url)
    yield app
    await app.close()


@pytest_asyncio.fixture
async def still(database_url: str, clock: ManualClock) -> AsyncIterator[App]:
    """An App whose time stands still until `clock` is moved."""
    app = App(database_url, clock=clock)
    yield app
    await app.close()


@pytest_asyncio.fixture
async def store(still: App) -> AsyncIterator[Store]:
    yield await still.open()


@pytest_asyncio.fixture
async def worker(still: App) -> AsyncIterator[ManualWorker]:
    """Begun, and without loops. Jobs declared on `still` after this are known to it too."""
    worker = ManualWorker(still)
    await worker.begin()
    yield worker
    await worker.end()
