"""A worker that stops for ever between two statements of a claim, as SIGSTOP or a suspended machine makes it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from trueup import App
from trueup.jobs.limits import Controls, Limit
from trueup.store.db.own_connection import OwnConnection
from trueup.work.worker import Worker

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

LANE = "@report"


async def begun(url: str) -> tuple[App, Worker]:
    app = App(url, lease_for="1s")

    @app.job(limit=2)
    async def report() -> None: ...

    worker = app.worker()
    await worker.register()
    return app, worker


async def test_a_worker_frozen_inside_a_claim_is_rescued_and_its_lane_is_free_again(database_url: str) -> None:
    (app, frozen), (other_app, other) = await begun(database_url), await begun(database_url)
    line = frozen.claimer._lanes._database
    assert isinstance(line, OwnConnection)
    async with asyncio.timeout(20):
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            async with line.transaction() as connection:
                await connection.execute("select from trueup.workers where holder = %s for key share", [frozen.holder])
                await connection.execute("select from trueup.lanes where lane = %s for update", [LANE])
                while not await rescued(other, frozen.holder):
                    await asyncio.sleep(0.05)
                await connection.execute("select 1")
        job_id = await other_app.registry["report"].enqueue()
        await other.register()
        claim = await other.claimer._lanes.claim(other.registrations.current.holder, LANE, Controls(Limit(total=2)), 2)
    assert [job.id for job, _ in claim.jobs] == [job_id]
    for each, worker in ((app, frozen), (other_app, other)):
        await worker.abandon()
        await each.close()


async def rescued(by: Worker, holder: str) -> bool:
    await by.rescuer.run_once()
    return all(str(worker["holder"]) != holder for worker in await by.store.views.workers())
