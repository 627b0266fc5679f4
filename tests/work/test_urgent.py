"""A job of high priority waits for the claim under way and for its own: while such jobs come, claims are small."""

from __future__ import annotations

import pytest

from tests.support.watching import Watched
from trueup import App
from trueup.events import JobCompleted, JobsClaimed
from trueup.work.jobs.claimer import SMALL_CLAIM

pytestmark = pytest.mark.asyncio

BACKLOG = SMALL_CLAIM + 100


@pytest.mark.parametrize(("priority", "largest"), [(0, BACKLOG), (10, SMALL_CLAIM)])
async def test_claims_are_small_while_urgent_jobs_come(database_url: str, priority: int, largest: int) -> None:
    app = App(database_url)
    seen = Watched(app)

    @app.job
    async def work(n: int) -> None: ...

    async with app, app.worker(concurrency=BACKLOG):
        await work.using(priority=priority).enqueue(0)
        await seen.seen(JobCompleted)
        await work.enqueue_many((n,) for n in range(BACKLOG))
        await seen.seen(JobCompleted, count=1 + BACKLOG)
    assert max(claim.count for claim in seen.of(JobsClaimed)) == largest
