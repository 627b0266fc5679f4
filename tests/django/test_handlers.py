"""Django's connections around handlers, as around its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async
from django.db import connections

from tests.django.shop.jobs import (
    backend,
    backend_async,
    enqueues,
    leave,
    lose_connection,
    lose_connection_async,
    pay,
    ship,
)
from tests.django.shop.models import Order
from tests.support.waiting import wait_until
from trueup import JobFailed
from trueup.django.application import DjangoApp
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def worker(project: DjangoApp) -> AsyncIterator[ManualWorker]:
    worker = ManualWorker(project)
    await worker.begin()
    yield worker
    await worker.end()
    await project.close()


@pytest.fixture
def kept(project: DjangoApp) -> Any:
    """Connections of the project are kept for ever."""
    connections["default"].settings_dict["CONN_MAX_AGE"] = None


async def ran(worker: ManualWorker, job: Any, *args: Any) -> Any:
    handle = await job.enqueue(*args)
    await worker.run_pending()
    return await handle.result(timeout="5s")


def of_django(url: str) -> int:
    """Sessions in the database that are not trueup's."""
    query = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    with psycopg.connect(url) as own:
        return int(own.execute(f"{query} and application_name not like 'trueup%'").fetchone()[0])  # type: ignore[index]


@pytest.mark.parametrize("lose", [lose_connection, lose_connection_async], ids=lambda job: job.kind)
async def test_after_a_lost_connection_later_jobs_succeed(worker: ManualWorker, kept: None, lose: Any) -> None:
    with pytest.raises(JobFailed, match="terminating connection"):
        await ran(worker, lose)
    assert isinstance(await ran(worker, backend), int)
    assert isinstance(await ran(worker, backend_async), int)
    await ran(worker, leave)


async def test_a_connection_is_kept_as_long_as_the_settings_say(worker: ManualWorker, kept: None) -> None:
    first = await ran(worker, backend)
    assert await ran(worker, backend) == first
    await ran(worker, leave)
    connections.settings["default"]["CONN_MAX_AGE"] = 0
    assert await ran(worker, backend) != await ran(worker, backend)


async def test_no_connection_is_left_open(worker: ManualWorker, project: DjangoApp) -> None:
    await sync_to_async(Order.objects.create)(number=1)
    await sync_to_async(connections.close_all)()
    wait_until(lambda: of_django(project.store.url) == 0, "no connection of Django's is open")
    assert await ran(worker, pay, 1) == 1
    await ran(worker, ship, 1)
    await ran(worker, backend_async)
    # A session of the server ends a moment after its connection.
    wait_until(lambda: of_django(project.store.url) == 0, "the connections of the handlers are closed")


async def test_async_handlers_enqueue_on_connections_of_their_own(worker: ManualWorker) -> None:
    await ran(worker, enqueues, "from a handler")
    assert await worker.run_pending() == 0  # the first call ran it, too
