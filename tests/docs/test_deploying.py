"""What the page about deploying says about roles is enough, and nothing more is needed."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.docs.pages import DOCS, blocks
from trueup import App

DEPLOYING = DOCS / "howto/deploying.md"


@pytest.fixture
def web_url(database_url: str) -> Iterator[str]:
    """The database as the role that only enqueues sees it."""
    grants = next(block.code for block in blocks(DEPLOYING) if block.language == "sql" and "grant" in block.code)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("create role shop_web login")
        try:
            owner.execute(grants.encode())
            yield psycopg.conninfo.make_conninfo(database_url, user="shop_web")
        finally:
            owner.execute("drop owned by shop_web")
            owner.execute("drop role shop_web")


@pytest.mark.asyncio
async def test_a_role_with_the_rights_of_the_page_can_enqueue_and_wait(database_url: str, web_url: str) -> None:
    web, backend = App(web_url), App(database_url)
    declared = []
    for app in (web, backend):

        @app.job
        async def double(n: int) -> int:
            return 2 * n

        declared.append(double)
    enqueue = declared[0]
    async with web, backend, backend.worker():
        jobs = [
            await enqueue.enqueue(1),
            await enqueue.using(unique="k", unique_for="1h").enqueue(2),
            await enqueue.using(unique="r", on_conflict="replace").enqueue(3),
        ]
        assert (await enqueue.enqueue_many((n,) for n in range(1000))).created == 1000
        assert [await job.result(timeout="20s") for job in jobs] == [2, 4, 6]
