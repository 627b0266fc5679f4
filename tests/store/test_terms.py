"""Terms only grow: across promotions, new clusters and restores, and for leases whose names were forgotten."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.store.desk import Desk
from tests.support.standby import Standby
from tests.support.watching import until
from trueup import App
from trueup.embedded.binaries import locate
from trueup.embedded.cluster import Cluster
from trueup.store.history import KEEP_LEASES, Kept, Look
from trueup.store.leases import RowLeases
from trueup.store.store import Store
from trueup.testing.clock import ManualClock
from trueup.work.leases import hold

pytestmark = pytest.mark.asyncio

MINUTE = timedelta(minutes=1)
ROW_TERM = "select trueup.term_floor() + nextval('trueup.row_terms')"
EPOCH = 1 << 40


async def terms(store: Store) -> tuple[int, int, int]:
    """The next terms of a job that was never claimed, of a row and of a lease."""
    desk = Desk(store)
    await desk.put()
    holder = await desk.worker()
    (job,) = await desk.claim(holder)
    await store.jobs.complete(holder, [job], [None])
    name, mine = f"lease-{uuid4()}", uuid4()
    lease = RowLeases(store.terms).acquire(name, mine, MINUTE)
    assert lease is not None
    return job.term, int(await desk.scalar(ROW_TERM)), lease


async def lowest(store: Store) -> int:
    return int(await Desk(store).scalar("select trueup.term_floor()"))


async def test_terms_of_a_new_database_are_small(store: Store) -> None:
    assert await terms(store) == (1, 1, 1)


@pytest.mark.parametrize(
    "copied",
    [
        pytest.param("cluster = 'another'", id="restored into a new cluster"),
        pytest.param("relation = 1", id="restored into the same cluster"),
        pytest.param("timeline = timeline + 4, lowest = lowest + (4::bigint << 40)", id="failover, then pg_upgrade"),
    ],
)
async def test_in_a_copy_of_the_database_terms_go_on_above_all_that_were_given(store: Store, copied: str) -> None:
    desk = Desk(store)
    await desk.scalar(f"update trueup.epoch set {copied} returning 1")
    before = await terms(store)
    given = await lowest(store)
    await desk.scalar(f"update trueup.epoch set {copied} returning 1")
    await terms(store)  # a worker begins, and a lease is taken: either of them finds it out
    after = await terms(store)
    assert await lowest(store) >= given
    for was, now in zip(before, after, strict=True):
        assert now > max(was, given)


async def test_either_a_worker_or_a_lease_begins_the_next_epoch(store: Store) -> None:
    desk = Desk(store)
    for begin in (desk.worker, lambda: _lease(store)):
        was = await lowest(store)
        await desk.scalar("update trueup.epoch set cluster = 'another' returning 1")
        await begin()
        assert await lowest(store) == was + EPOCH
        await begin()
        assert await lowest(store) == was + EPOCH, "once"


async def _lease(store: Store) -> None:
    RowLeases(store.terms).acquire(f"lease-{uuid4()}", uuid4(), MINUTE)


async def test_a_new_timeline_is_kept_by_the_first_claim(store: Store) -> None:
    desk = Desk(store)
    await desk.scalar("update trueup.epoch set timeline = timeline - 1 returning 1")
    assert await lowest(store) == EPOCH
    assert await desk.scalar("select lowest from trueup.epoch") == EPOCH
    assert await lowest(store) == EPOCH


@pytest.mark.slow
async def test_terms_do_not_fall_after_a_failover_and_a_restore_into_a_new_cluster(tmp_path: Path) -> None:
    quick = {"fsync": "off"}
    with Cluster(tmp_path / "primary", settings=quick) as primary, Standby(primary, tmp_path / "standby") as standby:
        async with App(primary.url()) as app:
            app.store.migrate()
            first = await terms(app.store)
        standby.catch_up()
        primary.stop("immediate")
        standby.promote()
        async with App(standby.url()) as app:
            promoted = await terms(app.store)
        with Cluster(tmp_path / "new", settings=quick) as fresh:
            copy(standby.url(), fresh.url())
            async with App(fresh.url()) as app:
                restored = await terms(app.store)
            for was, then, now in zip(first, promoted, restored, strict=True):
                assert was < then < now


def copy(source: str, target: str) -> None:
    programs = locate()
    dump = subprocess.run([programs / "pg_dump", source], capture_output=True, check=True, timeout=120)
    psql = [programs / "psql", "--quiet", "--set=ON_ERROR_STOP=1", target]
    subprocess.run(psql, input=dump.stdout, capture_output=True, check=True, timeout=120, env={**os.environ})


# -- forgetting leases -------------------------------------------------------------------------------------------------


def names(store: Store) -> Any:
    return Desk(store).scalar("select coalesce(array_agg(name order by name), array[]::text[]) from trueup.leases")


async def prune(store: Store) -> None:
    """A pass of housekeeping, some time after one that agrees with it."""
    year = timedelta(days=365)
    now = store.clock.now() or datetime.now(UTC)
    store.history._earlier = Look(now - 2 * MINUTE, store.clock.elapsed() - 120)
    await store.history.prune(Kept(year, year, year, year, year))


async def test_leases_that_ended_a_day_ago_are_deleted_and_their_terms_not_reused(
    store: Store, clock: ManualClock
) -> None:
    leases, given = RowLeases(store.terms), list[int]()
    for name in ("released", "expired"):
        holder = uuid4()
        term = leases.acquire(name, holder, MINUTE)
        assert term is not None
        given.append(term)
        if name == "released":
            leases.release(name, holder, term)
    clock.advance(seconds=KEEP_LEASES.total_seconds())
    await prune(store)
    assert await names(store) == ["expired", "released"], "not yet"
    clock.advance(seconds=120)
    held = uuid4()
    assert leases.acquire("held", held, MINUTE)
    await prune(store)
    assert await names(store) == ["held"]
    again = [leases.acquire(name, uuid4(), MINUTE) for name in ("released", "expired")]
    assert all(term is not None and term > max(given) for term in again)


async def test_names_of_which_there_are_always_new_ones_do_not_pile_up(store: Store, clock: ManualClock) -> None:
    insert = (
        "insert into trueup.leases (name, term, lease_until, acquired_at, renewed_at)"
        " select 'order:' || n, 1, '-infinity', '2020-01-01', '2020-01-01' from generate_series(1, 2500) as n returning 1"
    )
    await Desk(store).scalar(insert)
    await prune(store)
    assert await names(store) == []


async def test_a_lease_in_a_fenced_transaction_is_not_forgotten(
    store: Store, clock: ManualClock, database_url: str
) -> None:
    leases, holder = RowLeases(store.terms), uuid4()
    term = leases.acquire("ledger", holder, MINUTE)
    assert term is not None
    clock.advance(seconds=KEEP_LEASES.total_seconds() + 120)
    with psycopg.connect(database_url) as tx:
        store.terms.fence_sync("ledger", holder, term, tx)
        await prune(store)
    assert await names(store) == ["ledger"]


@pytest.mark.slow
async def test_a_lease_that_is_kept_elsewhere_is_not_forgotten_while_it_is_held(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "TOUCH_EVERY", 0.0)
    old = b"update trueup.leases set renewed_at = '2020-01-01'"
    touched = "select renewed_at > '2021-01-01' from trueup.leases"
    async with app.lease("nightly", ttl="1s", backend="advisory"):
        await app.store.pool.fetch(old)
        with psycopg.connect(app.store.url, autocommit=True) as connection:
            await until(lambda: connection.execute(touched).fetchone() == (True,))


async def test_an_older_worker_gets_terms_of_the_sequence_too(store: Store) -> None:
    """The statement of the release before."""
    older = (
        "insert into trueup.leases as l (name, holder, label, term, lease_until, acquired_at, renewed_at)"
        " select 'nightly', gen_random_uuid(), '', greatest(1, trueup.term_floor()), '-infinity', now(), now()"
        " on conflict (name) do update set name = excluded.name, term = greatest(l.term + 1, excluded.term) returning term"
    )
    desk = Desk(store)
    given = [int(await desk.scalar(older)) for _ in range(3)]
    await desk.scalar("delete from trueup.leases returning 1")
    given.append(int(await desk.scalar(older)))
    assert given == sorted(set(given))


async def test_a_server_that_does_not_tell_its_timeline_has_terms_all_the_same(empty_database_url: str) -> None:
    """Some managed servers refuse it to everybody, others to those who are not superusers."""
    role = f"clerk_{uuid4().hex}"
    with psycopg.connect(empty_database_url, autocommit=True) as owner:
        owner.execute(f"create role {role} login; grant create on database {owner.info.dbname} to {role}")
        owner.execute("revoke execute on function pg_current_wal_insert_lsn() from public")
        owner.execute("revoke execute on function pg_control_system() from public")
    app = App(make_conninfo(empty_database_url, user=role))
    try:
        async with app:
            app.store.migrate()
            assert await terms(app.store) == (1, 1, 1)
            await app.store.pool.fetch(b"update trueup.epoch set cluster = 'another'")
            assert min(await terms(app.store)) >= EPOCH
    finally:
        with psycopg.connect(empty_database_url, autocommit=True) as owner:
            owner.execute(f"drop owned by {role} cascade; drop role {role}")
