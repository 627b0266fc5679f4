"""An idempotency key belongs to one job: the same for as long as it lives, and never that of another."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.database import TestServer
from trueup import App, Context, GiveUp, Retry, Snooze
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

pytestmark = pytest.mark.asyncio


class Receiver:
    """Acts on a request once per idempotency key, as payment providers do."""

    def __init__(self) -> None:
        self.charged: dict[str, str] = {}
        self.keys: list[str] = []

    def charge(self, key: str, customer: str) -> None:
        self.keys.append(key)
        self.charged.setdefault(key, customer)


async def work(url: str, receiver: Receiver, customers: list[str]) -> None:
    app = App(url)

    @app.job
    async def charge(customer: str, ctx: Context) -> None:
        receiver.charge(ctx.idempotency_key, customer)

    for customer in customers:
        await charge.enqueue(customer)
    worker = ManualWorker(app)
    await worker.begin()
    await worker.run_pending()
    await worker.end()
    await app.close()


async def test_after_a_restore_new_jobs_with_old_ids_are_not_taken_for_repetitions(
    server: TestServer, database_url: str
) -> None:
    receiver = Receiver()
    backup_of = str(conninfo_to_dict(database_url)["dbname"])
    app = App(database_url)

    @app.job
    async def charge(customer: str) -> None: ...

    await charge.enqueue("in the backup")
    await app.close()
    with server.database(template=backup_of) as restored:
        await work(database_url, receiver, ["charged before the restore"])
        await work(restored, receiver, ["charged after the restore"])
        with psycopg.connect(database_url) as one, psycopg.connect(restored) as other:
            ids = "select array_agg(id order by id) from trueup.history"
            assert one.execute(ids).fetchone() == other.execute(ids).fetchone() == ([1, 2],), "the ids were used again"
    assert sorted(receiver.charged.values()) == [
        "charged after the restore",
        "charged before the restore",
        "in the backup",
    ]
    assert len(receiver.keys) == 4, "the job in the backup was done again, under the key it had"


async def test_the_key_survives_failures_snoozes_takeovers_burial_and_revival(
    still: App, worker: ManualWorker, clock: ManualClock
) -> None:
    keys: list[str] = []

    @still.job(retry=Retry(max_attempts=3, first="1s"))
    async def charge(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        match len(keys):
            case 1:
                raise RuntimeError("try again")
            case 2:
                raise Snooze("1m")
            case 4:
                raise GiveUp("no")

    handle = await charge.enqueue()
    await worker.run_pending()
    clock.advance(seconds=60)
    await worker.run_pending()
    clock.advance(seconds=120)
    await worker.worker.register()
    await worker.claim()
    await worker.run_one()  # and dies before it has finished
    clock.advance(seconds=600)
    rescuer = ManualWorker(still)
    await rescuer.begin()
    await rescuer.rescue()
    await rescuer.run_pending()
    assert len(keys) == 4
    assert await still.jobs.revive([handle.id])
    await rescuer.run_pending()
    await rescuer.end()
    assert len(keys) == 5
    assert len(set(keys)) == 1


async def test_a_job_of_an_older_producer_has_a_key_too(still: App, worker: ManualWorker) -> None:
    keys: list[str] = []

    @still.job
    async def charge(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)

    insert = (
        b"insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts)"
        b" values ('charge', 'default', 'default', '2026-01-01', '2026-01-01', '{}', 3)"
    )
    for _ in range(2):
        await still.store.pool.fetch(insert)
    await worker.run_pending()
    assert len(set(keys)) == 2


async def test_new_arguments_are_a_new_request(still: App, worker: ManualWorker, clock: ManualClock) -> None:
    keys: list[str] = []

    @still.job(retry=Retry(max_attempts=3, first="1s"))
    async def charge(amount: int, ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        if amount == 1:
            raise RuntimeError("try again")

    first = await charge.using(unique="order:1").enqueue(1)
    await worker.run_pending()
    clock.advance(seconds=1)
    second = await charge.using(unique="order:1", on_conflict="replace").enqueue(2)
    clock.advance(seconds=60)
    await worker.run_pending()
    assert first.id == second.id
    assert len(set(keys)) == 2
