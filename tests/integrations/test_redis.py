"""Leases in a Redis that forgets, goes away and comes back. What all backends promise is in tests/leases."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from apps.servers.valkey import Valkey
from tests.support.watching import Watched
from trueup import App, ConfigError, LostLease, NotAcquired
from trueup.clock import elapsed
from trueup.events import LeaseAcquired, LeaseLost
from trueup.integrations.redis import RedisLeases, RedisQuorum
from trueup.work.leases.lease import LeaseContext

pytestmark = pytest.mark.asyncio


def lease(app: App, ttl: str = "30s") -> LeaseContext:
    return app.lease("nightly", ttl=ttl, backend="redis")


async def passed(seconds: float) -> None:
    """The time itself is what is tested: a lease outlives its ttl."""
    await asyncio.sleep(seconds)


@pytest_asyncio.fixture
async def app(database_url: str, valkey: Valkey) -> Any:
    app = App(database_url, redis_url=valkey.url)
    yield app
    await app.close()


@pytest_asyncio.fixture
async def quorum(database_url: str, three: list[Valkey]) -> Any:
    app = App(database_url, redis_url=",".join(server.url for server in three))
    yield app
    await app.close()


@pytest.mark.parametrize("forget", [Valkey.flush, Valkey.restart])
async def test_when_redis_forgets_there_are_two_holders_and_the_fence_refuses_the_older(
    app: App, valkey: Valkey, database_url: str, forget: Callable[[Valkey], None]
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create table written (term bigint not null)")

    async def write(held: Any) -> None:
        async with app.store.pool.transaction() as tx:
            await tx.execute("insert into written (term) values (%s)", [held.term])
            await held.fence(tx)

    async with lease(app) as older:
        await write(older)
        forget(valkey)
        with pytest.raises(LostLease):
            async with lease(app) as newer:
                await write(newer)
                assert older.held(), "it does not know yet"
                assert newer.held()
                await write(older)
        async with app.store.pool.use() as connection:
            rows = await (await connection.execute("select term from written order by term")).fetchall()
        assert rows == [(older.term,), (newer.term,)]


async def test_while_redis_is_away_nobody_gets_a_lease_and_the_reason_is_named(app: App, valkey: Valkey) -> None:
    valkey.stop()
    with pytest.raises(NotAcquired, match=r"Redis is unreachable: .*refused"):
        async with lease(app):
            pass


async def test_one_who_waits_gets_it_when_redis_is_back(app: App, valkey: Valkey) -> None:
    valkey.stop()

    async def wait_for_it() -> int:
        async with app.lease("nightly", wait="20s", backend="redis") as held:
            return held.term

    waiting = asyncio.create_task(wait_for_it())
    with pytest.raises(NotAcquired):
        async with lease(app):
            pass
    await asyncio.to_thread(valkey.start)
    assert await waiting == 1


async def test_when_redis_goes_away_its_holder_is_told_before_the_ttl_is_over(app: App, valkey: Valkey) -> None:
    events = Watched(app)
    with pytest.raises(LostLease):
        async with lease(app, ttl="1s"):
            valkey.stop()
            gone_at = elapsed()
            await asyncio.sleep(60)
    assert elapsed() - gone_at < 1
    assert [event.reason for event in events.of(LeaseLost)] == ["it could not be renewed in time"]


@pytest.mark.slow
async def test_a_redis_that_hangs_for_a_moment_costs_nothing(app: App, valkey: Valkey) -> None:
    async with lease(app, ttl="2s") as held:
        with valkey.hanging():
            await passed(1)
        await passed(1.5)
        held.check()


async def test_open_grants_a_lease_to_every_process_without_redis_and_the_newest_can_write(
    database_url: str, valkey: Valkey
) -> None:
    app = App(database_url, redis_url=valkey.url, redis_unavailable="open")
    valkey.stop()
    async with lease(app) as first, lease(app) as second:
        first.check()
        second.check()
        async with app.store.pool.transaction() as tx:
            with pytest.raises(LostLease):
                await first.fence(tx)
            await second.fence(tx)
    await app.close()


async def test_when_redis_is_back_one_of_those_who_got_it_openly_keeps_it(database_url: str, valkey: Valkey) -> None:
    app = App(database_url, redis_url=valkey.url, redis_unavailable="open")
    events = Watched(app)
    valkey.stop()

    async def hold() -> None:
        async with lease(app, ttl="1s"):
            await asyncio.sleep(60)

    holders = [asyncio.create_task(hold()) for _ in range(2)]
    await events.seen(LeaseAcquired, count=2)
    await asyncio.to_thread(valkey.start)
    done, pending = await asyncio.wait(holders, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert [type(task.exception()) for task in done] == [LostLease]
    (keeper,) = pending
    keeper.cancel()
    await asyncio.wait(pending)
    assert keeper.cancelled()
    await app.close()


async def test_a_quorum_goes_on_with_one_server_down_and_not_with_two(quorum: App, three: list[Valkey]) -> None:
    three[0].stop()
    async with lease(quorum) as held:
        with pytest.raises(NotAcquired, match="held elsewhere"):
            async with lease(quorum):
                pass
    assert held.term == 1
    three[1].stop()
    with pytest.raises(NotAcquired, match="1 of 3 Redis servers answered"):
        async with lease(quorum):
            pass


async def test_a_quorum_whose_minority_forgot_is_still_held_by_its_holder(quorum: App, three: list[Valkey]) -> None:
    async with lease(quorum, ttl="1s") as held:
        three[0].restart()
        with pytest.raises(NotAcquired):
            async with lease(quorum):
                pass
        await passed(1.5)
        held.check()


async def test_a_holder_that_loses_the_majority_is_told(quorum: App, three: list[Valkey]) -> None:
    with pytest.raises(LostLease):
        async with lease(quorum, ttl="1s"):
            for server in three[:2]:
                server.flush()
            await asyncio.sleep(60)


async def test_trying_in_vain_leaves_nothing_behind_on_any_server(quorum: App, three: list[Valkey]) -> None:
    async with lease(quorum):
        three[0].flush()
        with pytest.raises(NotAcquired):
            async with lease(quorum):
                pass
        assert [len(server.keys()) for server in three] == [0, 1, 1]
    assert [server.keys() for server in three] == [[], [], []]


async def test_what_expires_while_postgresql_makes_the_term_is_not_held(quorum: App, monkeypatch: Any) -> None:
    store = await quorum.open()
    backend = quorum._leasing.backend("redis", None)
    assert isinstance(backend, RedisQuorum)
    mint = store.terms.mint

    def slow(*arguments: Any) -> int:
        for server in backend._servers:
            server._client.flushall()  # as their expiry would
        return mint(*arguments)

    monkeypatch.setattr(store.terms, "mint", slow)
    with pytest.raises(NotAcquired, match="longer than its ttl") as unknown:
        await asyncio.to_thread(backend.acquire, "nightly", uuid4(), timedelta(seconds=1))
    assert unknown.value.unreachable
    backend.close()


async def test_a_key_of_ones_own_is_that_key_and_another_lease_than_the_one_of_that_name(
    app: App, valkey: Valkey
) -> None:
    async with app.lease("nightly", key="cron:nightly", backend="redis") as held:
        assert valkey.keys() == ["cron:nightly"]
        async with app.lease("cron:nightly", backend="redis"), app.store.pool.transaction() as tx:
            await held.fence(tx)  # the other one's term is not of this lease
        with pytest.raises(NotAcquired):
            async with app.lease("whatever", key="cron:nightly", backend="redis"):
                pass
    assert valkey.keys() == []


async def test_a_quorum_takes_a_key_of_ones_own_on_every_server(quorum: App, three: list[Valkey]) -> None:
    async with quorum.lease("nightly", key="cron:nightly", backend="redis"):
        assert [server.keys() for server in three] == [["cron:nightly"]] * 3


async def test_a_key_that_redis_has_no_use_for_is_refused(app: App) -> None:
    for key in (7, "", "two words"):
        with pytest.raises(ConfigError, match="key"):
            app.lease("nightly", key=key, backend="redis")
    with pytest.raises(ConfigError, match="key"):
        app.lease("nightly", key="cron:nightly")


async def test_without_a_redis_the_lease_says_what_to_set(database_url: str) -> None:
    app = App(database_url)
    with pytest.raises(ConfigError, match="TRUEUP_REDIS_URL"):
        async with lease(app):
            pass
    await app.close()


@pytest.mark.parametrize("urls", [["redis://a", "redis://b"], ["redis://a", "redis://a", "redis://b"]])
async def test_a_quorum_of_two_or_of_one_server_twice_is_none(app: App, urls: list[str]) -> None:
    with pytest.raises(ConfigError, match="three or more different"):
        RedisQuorum(urls, app.store.terms, "trueup")


async def test_an_open_quorum_is_refused(database_url: str, three: list[Valkey]) -> None:
    app = App(database_url, redis_url=",".join(each.url for each in three), redis_unavailable="open")
    with pytest.raises(ConfigError, match="one server"):
        async with lease(app):
            pass
    await app.close()


async def test_a_password_in_the_url_is_shown_nowhere(database_url: str, valkey: Valkey) -> None:
    app = App(database_url, redis_url=valkey.url.replace("redis://", "redis://:s3cret@"))
    valkey.stop()
    with pytest.raises(NotAcquired) as refused:
        async with lease(app):
            pass
    assert "s3cret" not in f"{refused.value}{app.settings}"
    await app.close()


async def test_the_one_server_backend_is_what_one_url_gives(app: App) -> None:
    backend = app._leasing.backend("redis", None)
    assert isinstance(backend, RedisLeases)
    backend.close()


@pytest_asyncio.fixture
async def shop(database_url: str, valkey: Valkey) -> Any:
    """Another installation on the same servers."""
    shop = App(database_url, redis_url=valkey.url, schema="shop")
    await asyncio.to_thread(shop.store.migrate)
    yield shop
    await shop.close()


async def test_installations_that_share_a_redis_do_not_share_their_leases(
    app: App, shop: App, valkey: Valkey, database_url: str
) -> None:
    async with lease(app), lease(shop):
        assert valkey.keys() == ["shop:lease:nightly", "trueup:lease:nightly"]
        beside = App(database_url, redis_url=valkey.url, schema="shop")
        with pytest.raises(NotAcquired):
            async with lease(beside):
                pass
        await beside.close()
    assert valkey.keys() == []


async def test_installations_that_name_one_key_share_it(app: App, shop: App, valkey: Valkey) -> None:
    async with app.lease("nightly", backend="redis", key="cron:nightly"):
        assert valkey.keys() == ["cron:nightly"]
        with pytest.raises(NotAcquired):
            async with shop.lease("nightly", backend="redis", key="cron:nightly"):
                pass


async def test_a_holder_under_the_key_of_an_older_release_is_refused_by_the_fence(shop: App, valkey: Valkey) -> None:
    older = RedisLeases(valkey.url, shop.store.terms, "trueup")  # where schemas were not part of the key
    holder = uuid4()
    term = await asyncio.to_thread(older.acquire, "nightly", holder, timedelta(seconds=30))
    assert term == 1
    async with lease(shop) as newer:
        assert valkey.keys() == ["shop:lease:nightly", "trueup:lease:nightly"], "both hold it"
        async with shop.transaction() as tx:
            await newer.fence(tx)
        with pytest.raises(LostLease):
            async with shop.transaction() as tx:
                await shop.store.terms.fence(older.fence_name("nightly"), holder, term, tx)
    older.close()


async def test_without_the_package_the_error_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['redis'] = None; import trueup.integrations.redis"
    failed = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    assert 'pip install "trueup[redis]"' in failed.stderr
