from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.desk import Desk
from tests.support.standby import Standby
from trueup import App
from trueup.embedded.cluster import Cluster
from trueup.jobs.job import ClaimedJob

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "primary", settings={"fsync": "off"}) as cluster:
        yield cluster


async def claim_again_and_again(desk: Desk, times: int) -> ClaimedJob:
    """The only job, as it was claimed the last time."""
    for _ in range(times):
        holder = await desk.worker()
        (job,) = await desk.claim(holder)
        await desk.store.jobs.release(holder, [job], ["default"], [""])
    return job


async def test_the_terms_of_a_promoted_standby_are_larger_than_any_it_has_forgotten(
    primary: Cluster, tmp_path: Path
) -> None:
    with Standby(primary, tmp_path / "standby") as standby:
        async with App(primary.url()) as app:
            app.store.migrate()
            desk = Desk(app.store)
            job_id = await desk.put()
            known = await claim_again_and_again(desk, 2)
            standby.catch_up()
            standby.stop_receiving()
            forgotten = await claim_again_and_again(desk, 5)
        primary.stop("immediate")
        standby.promote()
        async with App(standby.url()) as app:
            desk = Desk(app.store)
            assert (await desk.row(job_id))["term"] == known.term < forgotten.term, "the standby did not lag"
            after = await claim_again_and_again(desk, 1)
            assert after.term > forgotten.term
            assert (await claim_again_and_again(desk, 1)).term == after.term + 1
