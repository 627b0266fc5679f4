"""A server whose messages are translated: what trueup concludes from an error does not depend on its language.

Such a server refuses connections in its own language, and libpq does not tell the SQLSTATE of a connection that failed.
"""

from __future__ import annotations

import asyncio
import os
import signal

import psycopg
import pytest

from tests.support.debian_server import DebianServer
from tests.support.waiting import wait_until
from tests.support.watching import Watched
from trueup import App
from trueup.events import DatabaseLost, DatabaseRestored

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


def refuses(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return True
    return False


async def test_a_worker_waits_for_a_server_that_restarts(debian: DebianServer) -> None:
    with debian.german(), debian.database() as url:
        app = App(url, start_within="60s")

        @app.job
        async def send(n: int) -> int:
            return n

        watched = Watched(app)
        with psycopg.connect(url):
            server = debian.cluster.pid
            assert server is not None
            os.kill(server, signal.SIGTERM)  # it waits for the session, and refuses every other
            wait_until(lambda: refuses(url), "the server stops")
            worker = app.worker()
            starting = asyncio.create_task(worker.start())
            (lost,) = await watched.seen(DatabaseLost, part="start")
            assert "das Datenbanksystem f" in lost.error
        debian.cluster.stop("smart")
        debian.start()
        await asyncio.wait_for(starting, 60)
        assert watched.of(DatabaseRestored, part="start")
        assert await (await send.enqueue(7)).result("30s") == 7
        await worker.stop()
        await app.close()
