"""What the page about deploying says about roles is enough: exactly its SQL is run, and everything works under those roles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.docs.pages import DOCS, blocks
from tests.support import round_trips
from tests.support.watching import Watched, until_beside
from trueup import App
from trueup.events import ServiceFailed
from trueup.store.db.migrate import Migrator

pytestmark = pytest.mark.asyncio

DEPLOYING = DOCS / "howto/deploying.md"
SQL = [block.code for block in blocks(DEPLOYING) if block.language == "sql"]
ROLES = ("shop_worker", "shop_web", "shop_reader", "shop_guest")


@dataclass(frozen=True)
class Shop:
    owner: str  # a superuser's URL

    def url(self, role: str) -> str:
        return make_conninfo(self.owner, user=role)


@pytest.fixture
def shop(empty_database_url: str) -> Iterator[Shop]:
    """A database that was set up as the page says, with tables of the application's own."""
    shop = Shop(empty_database_url)
    with psycopg.connect(shop.owner, autocommit=True) as owner:
        for role in ROLES:
            owner.execute(f"create role {role} login".encode())
        try:
            for statements in SQL:
                owner.execute(statements.encode())
                if "create schema" in statements:
                    with psycopg.connect(shop.url("shop_worker"), autocommit=True) as worker:
                        Migrator(worker, "trueup").migrate()
            owner.execute(round_trips.TABLES)
            owner.execute("grant all on papers, written to shop_worker, shop_guest")
            yield shop
        finally:
            owner.execute("drop table if exists papers, written; drop schema if exists trueup cascade")
            for role in ROLES:
                owner.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["shop_worker", "shop_guest"])
async def test_the_rights_of_the_page_are_enough_for_everything(shop: Shop, worker: str) -> None:
    await round_trips.everything(shop.url(worker), web_url=shop.url("shop_web"), look=shop.owner)


REFUSED = (
    "update trueup.jobs set state = 'running'",
    "update trueup.jobs set kind = 'other'",
    "update trueup.jobs set holder = gen_random_uuid()",
    "delete from trueup.jobs",
    "insert into trueup.jobs (state) values ('running')",
    "select args from trueup.jobs",
    "select args from trueup.history",
    "delete from trueup.history",
    "select * from trueup.workers",
)


async def test_a_role_that_enqueues_can_do_no_more_than_that(shop: Shop) -> None:
    with psycopg.connect(shop.url("shop_web"), autocommit=True) as web:
        for refused in REFUSED:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                web.execute(refused.encode())


async def test_a_role_that_looks_sees_everything_and_changes_nothing(shop: Shop) -> None:
    async with App(shop.url("shop_reader")) as app:
        assert len(await app.jobs.list(kind="anything")) == 0
        assert await app.workers.list() == ()
        assert await app.jobs.queues() == ()
    with psycopg.connect(shop.url("shop_reader")) as reader, pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("delete from trueup.jobs")


OLD_HISTORY = """
insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes, term,
                            holder, enqueued_at, finished_at, errors)
select n, 'old', 'q', 'q', '', 'done', 0, now(), '{}', 1, 1, 0, 1, gen_random_uuid(), now(), now() - interval '3 days', '[]'
  from generate_series(1, 3) as n
"""


async def test_history_expires_without_the_right_to_make_days_and_that_is_said_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trueup.store.history.APART", 0.5)  # seconds between two passes that must agree on the time
    with psycopg.connect(shop.owner, autocommit=True) as owner:
        owner.execute(OLD_HISTORY)
    app = App(shop.url("shop_guest"), prune_every="1s", keep_done="1s")
    watched = Watched(app)
    async with app, app.worker() as worker:
        await until_beside(lambda: round_trips.count(shop.owner, "trueup.history") == 0)
        for _ in range(3):
            await worker.pruner.prune()
    (said,) = watched.of(ServiceFailed)
    assert "permission denied" in said.error
    assert "owner of the schema" in said.error
