"""A worker process as the crash tests run it: `python -m tests.crash.fleet`.

Its jobs have effects of each kind: in the database together with "done", in the database by an idempotency key, and outside
(a line in the process's journal). `TABLES` is what they write to.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.working import restarted, work
from tests.support.journal import VARIABLE, Journal
from trueup import App, Context, Discard, GiveUp, Job, Retry, Snooze, Worker
from trueup.clock import elapsed

TABLES = """
create schema effects;
create table effects.written (job bigint not null, term bigint not null);
create table effects.delivered (key text primary key, content text not null);
create table effects.spans (kind text not null, key text not null, began timestamptz not null default clock_timestamp(), ended timestamptz);
"""
TRANSACTIONAL = frozenset({"transfer", "transfer_sync", "flaky", "slow"})
OUTSIDE = frozenset({"deliver"})
LIMITS = {"limited": 2, "fair": 3}
RATE = 20  # starts of `rated` per second

# Enough for every crash and lost connection a test can bring; the delays stay short.
PATIENT = Retry(max_attempts=100, first="50ms", factor=1.5, cap="500ms")


@dataclass(frozen=True)
class Jobs:
    quick: Job[..., Any]
    transfer: Job[..., Any]
    transfer_sync: Job[..., Any]
    flaky: Job[..., Any]
    slow: Job[..., Any]
    deliver: Job[..., Any]
    rated: Job[..., Any]
    fair: Job[..., Any]
    limited: Job[..., Any]
    choosy: Job[..., Any]
    gated: Job[..., Any]
    poison: Job[..., Any]


def declare(app: App, journal: Journal | None = None) -> Jobs:
    """The jobs of the crash tests. Only a worker needs the journal."""
    write = "insert into effects.written (job, term) values (%s, %s)"

    async def span(ctx: Context, key: str) -> None:
        async with app.store.pool.use() as connection:
            began = await connection.execute(
                b"insert into effects.spans (kind, key) values (%s, %s) returning began", [ctx.job.kind, key]
            )
            row = await began.fetchone()
            await asyncio.sleep(0.01)
            await connection.execute(b"update effects.spans set ended = clock_timestamp() where began = %s", row)

    @app.job(retry=PATIENT)
    async def quick(n: int) -> int:
        return n

    @app.job(retry=PATIENT)
    async def transfer(n: int, *, ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(write, [ctx.job.id, ctx.term])

    @app.job(retry=PATIENT)
    def transfer_sync(n: int, *, ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute(write, [ctx.job.id, ctx.term])

    @app.job(retry=PATIENT)
    async def flaky(n: int, *, ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("the first attempt always fails")
        async with ctx.transaction() as tx:
            await tx.execute(write, [ctx.job.id, ctx.term])

    @app.job(retry=PATIENT)
    async def slow(n: int, *, ctx: Context) -> None:
        await asyncio.sleep(0.3)
        async with ctx.transaction() as tx:
            await tx.execute(write, [ctx.job.id, ctx.term])

    @app.job(retry=PATIENT)
    async def deliver(n: int, *, ctx: Context) -> None:
        assert journal is not None
        content = f"parcel {n}"
        journal.effect(job=ctx.job.id, term=ctx.term, key=ctx.idempotency_key, content=content)
        statement = b"insert into effects.delivered (key, content) values (%s, %s) on conflict do nothing"
        async with app.store.pool.use() as connection:
            await connection.execute(statement, [ctx.idempotency_key, content])

    @app.job(retry=PATIENT, limit=LIMITS["limited"])
    async def limited(n: int, *, ctx: Context) -> None:
        await span(ctx, "")

    @app.job(retry=PATIENT, rate=f"{RATE}/s")
    async def rated(n: int, *, ctx: Context) -> None: ...

    @app.job(retry=PATIENT, fair_by="tenant", limit=LIMITS["fair"])
    async def fair(tenant: str, *, ctx: Context) -> None:
        await span(ctx, tenant)

    @app.job(retry=PATIENT)
    async def choosy(n: int, *, ctx: Context) -> int:
        match n % 4:
            case 0:
                raise Discard("not wanted")
            case 1:
                raise GiveUp("hopeless")
            case 2 if ctx.term == 1:
                raise Snooze("50ms")
        return n

    @app.job(retry=PATIENT)
    async def gated(gate: str, *, ctx: Context) -> None:
        while not Path(gate).exists():
            await asyncio.sleep(0.01)

    @app.job(retry=Retry(max_attempts=3))
    async def poison() -> None:
        os._exit(1)

    return Jobs(quick, transfer, transfer_sync, flaky, slow, deliver, rated, fair, limited, choosy, gated, poison)


async def run(app: App, journal: Journal, workers: list[Worker]) -> None:
    workers[:] = [app.worker()]
    await work(app, workers[0], journal)


def main() -> None:
    workers: list[Worker] = []

    def trust_left() -> float:
        registration = workers[0].registrations.present
        return registration.trust.left(elapsed()) if registration is not None else 0.0

    journal = Journal(Path(os.environ[VARIABLE]), trust_left)
    app = App()
    declare(app, journal)
    restarted(lambda: run(app, journal, workers))
    journal.close()


if __name__ == "__main__":
    main()
