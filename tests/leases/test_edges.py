"""Where holding a lease could go wrong: cancelled, forked, closed, entered twice, cut off, and with nobody to ask."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from apps.servers.valkey import Valkey
from tests.support.database import TestServer
from tests.support.pgbouncer import PgBouncer
from tests.support.proxy import Proxy
from tests.support.watching import Watched, until
from trueup import App, ConfigError, DatabaseUnavailable, LostLease, NotAcquired
from trueup.clock import elapsed
from trueup.events import LeaseAcquired, LeaseLost, LeaseNotReleased
from trueup.work.leases import hold

pytestmark = pytest.mark.asyncio

SECOND = timedelta(seconds=1)


async def is_free(app: App, name: str = "nightly") -> bool:
    try:
        async with app.lease(name):
            return True
    except NotAcquired:
        return False


@pytest.mark.parametrize("backend", ["postgres", "advisory"])
async def test_a_lease_that_was_released_before_its_threads_had_a_turn_is_not_lost(
    app: App, monkeypatch: pytest.MonkeyPatch, backend: Any
) -> None:
    events, released, watched = Watched(app), threading.Event(), threading.Event()
    watch = hold.Hold._watch

    def late(self: hold.Hold) -> None:
        released.wait(10)
        watch(self)
        watched.set()

    monkeypatch.setattr(hold.Hold, "_watch", late)
    async with app.lease("brief", backend=backend):
        pass
    released.set()
    await asyncio.to_thread(watched.wait, 10)
    assert events.of(LeaseAcquired)
    assert not events.of(LeaseLost)


async def forget(app: App) -> None:
    """As if the time of every lease were over."""
    async with app.store.pool.use() as connection:
        await connection.execute("update trueup.leases set lease_until = '-infinity'")


def rows(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select name, holder is not null, renewed_at from trueup.leases").fetchall()


def renewed(url: str) -> datetime:
    return next(at for name, _, at in rows(url) if name == "rows")


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"trueup lease {name}")]


async def test_the_same_name_twice_in_one_process_are_two_holders(app: App) -> None:
    async with app.lease("nightly"):
        assert not await is_free(app)


async def test_a_holding_is_entered_again_as_another_holder_but_not_while_it_is_held(app: App) -> None:
    holding = app.lease("nightly")
    async with holding as first:
        with pytest.raises(RuntimeError, match="is already held"):
            await holding.__aenter__()
    async with holding as second:
        assert (second.term, second.holder != first.holder) == (first.term + 1, True)


async def test_leaving_gives_it_back_also_after_an_error_which_is_not_replaced(app: App) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.lease("nightly"):
            raise ZeroDivisionError
    assert await is_free(app)


async def test_cancelling_the_body_from_outside_stays_a_cancellation_and_gives_it_back(app: App) -> None:
    entered = asyncio.Event()

    async def body() -> None:
        async with app.lease("nightly"):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(body())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await is_free(app)


async def test_cancelled_from_outside_and_lost_at_once_it_stays_a_cancellation(app: App) -> None:
    cleaning = asyncio.Event()

    async def body() -> None:
        async with app.lease("nightly", ttl="1s") as lease:
            try:
                await asyncio.sleep(60)
            finally:
                cleaning.set()
                await lease.lost.wait()

    task = asyncio.create_task(body())
    events = Watched(app)
    await events.seen(LeaseAcquired)
    task.cancel()
    await cleaning.wait()
    await forget(app)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_timeout_around_a_holder_is_still_a_timeout(app: App) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), app.lease("nightly"):
            await asyncio.sleep(60)


async def test_one_who_is_cancelled_while_waiting_holds_nothing_later(app: App) -> None:
    async with app.lease("nightly"):
        waits = asyncio.create_task(app.lease("nightly", wait="60s").__aenter__())
        await until(lambda: len(threads("nightly")) == 3)  # two look after the lease, one asks for it
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
    await until(lambda: not threads("nightly"))
    assert await is_free(app)


@pytest.mark.slow
async def test_cancelled_in_the_moment_it_is_taken_it_is_given_back(database_url: str) -> None:
    with Proxy.before(database_url) as proxy:
        app, through = App(database_url), App(proxy.url(database_url))
        events = Watched(through)
        proxy.delay(0.2)
        taking = asyncio.create_task(through.lease("nightly").__aenter__())
        await until(lambda: [held for _, held, _ in rows(database_url)] == [True])
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        proxy.heal()
        await until(lambda: [held for _, held, _ in rows(database_url)] == [False])
        assert not events.of(LeaseLost)
        assert await is_free(app)
        await through.close()
        await app.close()


async def test_a_lost_reply_to_the_acquisition_does_not_lock_its_own_holder_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "RETRY_DELAYS", (0.01,))
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url))
        async with app.lease("warm-up"):
            pass
        loss = proxy.drop_next_reply(to=b"COMMIT")
        async with app.lease("nightly") as lease:
            assert lease.term > 2, "it was taken twice, the second time under a later term"
        await asyncio.to_thread(loss.wait, 10)
        await app.close()


async def test_a_database_that_is_away_is_tried_again_and_then_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "RETRY_DELAYS", (0.01, 0.02, 0.04))
    app = App("postgresql://nobody:secret@127.0.0.1:1/none", connect_timeout="1s")
    with pytest.raises(DatabaseUnavailable, match="nightly") as refused:
        async with app.lease("nightly"):
            pass
    assert "secret" not in str(refused.value)
    await app.close()


@pytest.mark.slow
async def test_a_holder_behind_a_silent_network_is_told_before_its_ttl_is_over(database_url: str) -> None:
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url), statement_timeout="2s")
        with pytest.raises(LostLease):
            async with app.lease("nightly", ttl="2s") as lease:
                silent_at = elapsed()
                proxy.black_hole()
                try:
                    await asyncio.sleep(60)
                finally:
                    told_after = elapsed() - silent_at
        assert told_after < 2
        assert lease.lost.is_set()
        proxy.heal()
        await app.close()


async def test_a_release_that_fails_is_said_and_raises_nothing(database_url: str) -> None:
    with Proxy.before(database_url) as proxy:
        app = App(proxy.url(database_url), connect_timeout="1s")
        events = Watched(app)
        async with app.lease("nightly"):
            proxy.cut()
        assert len(events.of(LeaseNotReleased)) == 1
        proxy.heal()
        await app.close()


async def test_closing_the_app_tells_its_holders(app: App, database_url: str) -> None:
    events = Watched(app)
    with pytest.raises(LostLease):
        async with app.lease("nightly"):
            await app.close()
            await asyncio.sleep(60)
    assert [event.reason for event in events.of(LeaseLost)] == ["the App was closed"]
    with psycopg.connect(database_url) as connection:
        left = "select count(*) from pg_stat_activity where datname = current_database() and application_name like '%lease%'"
        await until(lambda: connection.execute(left).fetchone() == (0,) or connection.rollback())


async def test_a_forked_child_does_not_hold_what_its_parent_holds(app: App) -> None:
    with app.lease_sync("nightly") as lease:
        child = os.fork()
        if child == 0:  # only what is async-signal-safe enough: no threads, no test framework
            os._exit(0 if not lease.held() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.check()


async def test_nobody_takes_over_before_a_fenced_transaction_has_ended(app: App) -> None:
    with pytest.raises(LostLease):
        async with app.lease("nightly", ttl="1s") as lease:
            async with app.store.pool.transaction() as tx:
                await lease.fence(tx)
                await forget(app)
                assert not await is_free(app)
            assert await is_free(app)
            await asyncio.sleep(60)


@pytest.mark.parametrize("backend", ["postgres", "advisory"])
async def test_after_it_was_given_back_a_lease_is_not_held_and_its_fence_refuses(app: App, backend: Any) -> None:
    async with app.lease("nightly", backend=backend) as lease:
        assert lease.held()
    assert not lease.held()
    assert not lease.lost.is_set(), "it was given back, not lost"
    assert "not held" in repr(lease)
    with pytest.raises(LostLease, match="released"):
        lease.check()
    async with app.transaction() as tx:
        with pytest.raises(LostLease):
            await lease.fence(tx)


async def test_a_lost_lease_is_refused_by_its_fence(app: App) -> None:
    with pytest.raises(LostLease):
        async with app.lease("nightly", ttl="1s") as lease:
            await app.store.pool.fetch(b"delete from trueup.leases")
            await asyncio.sleep(60)
    async with app.transaction() as tx:
        with pytest.raises(LostLease):
            await lease.fence(tx)


async def test_an_advisory_name_and_the_key_of_that_number_are_fenced_apart(app: App) -> None:
    async with (
        app.lease("42", backend="advisory") as named,
        app.lease("other", backend="advisory", key=42) as numbered,
        app.transaction() as tx,
    ):
        await named.fence(tx)
        await numbered.fence(tx)


async def test_one_frozen_in_a_fenced_transaction_does_not_keep_the_lease_for_ever(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "MIN_SILENCE", SECOND)
    lease = await app.lease("nightly", ttl="1s").__aenter__()
    with psycopg.connect(database_url) as frozen:
        lease.fence_sync(frozen)
        await app.close()  # nothing renews it from here on
        other = App(database_url)
        with other.lease_sync("nightly", wait="15s") as heir:
            assert heir.term > lease.term
        other.close_sync()
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            frozen.execute("select 'too late'")


@pytest.mark.parametrize(("theirs", "then"), [("0", "1min"), ("5s", "5s"), ("1h", "1min"), ("60001ms", "1min")])
async def test_a_fence_bounds_silence_and_leaves_a_shorter_bound_alone(
    app: App, database_url: str, theirs: str, then: str
) -> None:
    setting = "idle_in_transaction_session_timeout"
    async with app.lease("nightly") as lease, await psycopg.AsyncConnection.connect(database_url) as tx:
        await tx.execute(f"set {setting} = '{theirs}'")
        await tx.commit()
        await lease.fence(tx)
        shown = await (await tx.execute(f"show {setting}")).fetchone()
        await tx.commit()
        after = await (await tx.execute(f"show {setting}")).fetchone()
    assert (shown, after) == ((then,), (theirs,))


async def test_a_lease_whose_row_is_locked_is_unknown_unless_it_is_seen_to_be_held(app: App, database_url: str) -> None:
    async with app.lease("nightly") as lease:
        with psycopg.connect(database_url) as tx:
            lease.fence_sync(tx)
            with pytest.raises(NotAcquired, match="held elsewhere") as held:
                await app.lease("nightly").__aenter__()
            assert not held.value.unreachable
            await forget(app)
            with pytest.raises(NotAcquired, match="another transaction has locked it") as unknown:
                await app.lease("nightly").__aenter__()
            assert unknown.value.unreachable


@pytest.mark.slow
async def test_renewals_go_on_while_a_fenced_transaction_is_open(app: App) -> None:
    async with app.lease("nightly", ttl="3s") as lease, app.store.pool.transaction() as tx:
        await lease.fence(tx)
        held_until = elapsed() + 4  # beyond the ttl; a shorter one may run out on a busy machine
        await until(lambda: elapsed() > held_until)
        lease.check()


async def test_the_longest_a_lease_may_be_held_is_kept_to(app: App) -> None:
    events = Watched(app)
    with pytest.raises(LostLease):
        async with app._leasing.holding(hold.LeaseRequest("nightly", SECOND, most=SECOND), "postgres", None):
            await asyncio.sleep(60)
    assert [event.reason for event in events.of(LeaseLost)] == ["it reached its maximum duration"]


@pytest.mark.slow
async def test_behind_a_pooler_all_work_but_the_advisory_one_which_says_why(
    server: TestServer, database_url: str, valkeys: list[Valkey]
) -> None:
    database = str(conninfo_to_dict(database_url)["dbname"])
    with PgBouncer(database_url) as pooler:
        app = App(pooler.url(database), redis_url=valkeys[0].url)
        async with app.lease("rows", ttl="1s") as kept, app.lease("redis", ttl="1s", backend="redis") as redis:
            assert not await is_free(app, "rows")
            async with app.store.pool.transaction() as tx:
                await kept.fence(tx)
                await redis.fence(tx)
        with pytest.raises(ConfigError, match="pooler"):
            async with app.lease("advisory", backend="advisory"):
                pass
        await app.close()
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


@pytest.mark.slow
async def test_a_restarted_database_costs_rows_nothing_and_ends_advisory_locks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with TestServer(tmp_path_factory.mktemp("pg"), synchronous_commit="on") as server, server.database() as url:
        app = App(url)
        events = Watched(app)
        async with app.lease("rows", ttl="6s") as kept:
            with pytest.raises(LostLease):
                async with app.lease("advisory", ttl="6s", backend="advisory"):
                    await asyncio.to_thread(server.cluster.restart, "immediate")
                    await asyncio.sleep(60)
            before = renewed(url)
            await until(lambda: renewed(url) > before)
            async with app.store.pool.transaction() as tx:
                await kept.fence(tx)
        assert [event.lease for event in events.of(LeaseLost)] == ["advisory"]
        await app.close()


async def test_a_numeric_key_is_the_lock_that_others_know(app: App, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(738523901)")
        with pytest.raises(NotAcquired):
            async with app.lease("nightly", backend="advisory", key=738523901):
                pass
    async with app.lease("nightly", backend="advisory", key=738523901), app.lease("nightly", backend="advisory"):
        pass


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ttl": "500ms"}, "too short"),
        ({"key": 1}, "key="),
        ({"backend": "etcd"}, "backend='etcd'"),
        ({"name": "redis:nightly"}, "in other backends"),
        ({"name": "no blanks"}, "lease"),
    ],
)
async def test_a_lease_that_makes_no_sense_is_refused_when_it_is_asked_for(
    app: App, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        app.lease(**{"name": "nightly", **options})


async def test_many_leases_of_one_process_share_two_connections(app: App, database_url: str) -> None:
    holdings = [app.lease(f"lease-{n}") for n in range(20)]
    await asyncio.gather(*(holding.__aenter__() for holding in holdings))
    with psycopg.connect(database_url) as connection:
        shared = "select count(*) from pg_stat_activity where datname = current_database() and application_name like 'trueup lease%'"
        assert connection.execute(shared).fetchone() in ((1,), (2,))
    await asyncio.gather(*(holding.__aexit__(None, None, None) for holding in holdings))
    await until(lambda: not threads("lease-"))
