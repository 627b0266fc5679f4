"""A worker process that keeps what it has in hand until the file `GATE` is there: `python -m tests.crash.gated`.

It has a job, a reconciler for each way of keeping a lease on rows, and a schedule for every second. What is in hand ends with
an effect that commits with it. And there is work that waits for nothing: a plain job, and one at a rate. `TABLES` is what it
all works on.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from tests.crash.planner import EVERY_SECOND
from tests.crash.sweeps import TASKS, WRITE
from tests.crash.working import work
from tests.support.journal import VARIABLE, Journal
from trueup import App, Context, Job, Retry, Row, Tick, To

MODES = ("lease", "lease_columns", "row_lock")
TABLES = """
create schema effects;
create table effects.written (reconciler text not null, key text not null, term bigint not null, process int not null);
create table effects.transferred (job bigint not null, term bigint not null);
""" + "".join(TASKS.format(mode=mode) for mode in MODES)
TRANSFER = "insert into effects.transferred (job, term) values (%s, %s)"
ATTEMPTS = 10
RETRY = Retry(max_attempts=ATTEMPTS, first="50ms", factor=1.5, cap="500ms")


@dataclass(frozen=True)
class Jobs:
    transfer: Job[..., Any]
    quick: Job[..., Any]
    rated: Job[..., Any]
    bulky: Job[..., Any]


async def passed() -> None:
    gate = Path(os.environ["GATE"])
    while not gate.exists():
        await asyncio.sleep(0.01)


def declare(app: App) -> Jobs:
    @app.job(retry=RETRY)
    async def transfer(n: int, *, ctx: Context) -> None:
        await passed()
        async with ctx.transaction() as tx:
            await tx.execute(TRANSFER, [ctx.job.id, ctx.term])

    @app.job(retry=RETRY)
    async def quick(n: int) -> None: ...

    @app.job(retry=RETRY, rate="20/s")
    async def rated(n: int) -> None: ...

    @app.job(retry=RETRY)
    async def bulky(n: int) -> str:
        """What it returns needs room that no page has left."""
        await passed()
        return secrets.token_hex(4_000)

    @app.cron(EVERY_SECOND, overlap="allow")
    async def secondly(tick: Tick) -> None: ...

    return Jobs(transfer, quick, rated, bulky)


def declare_rows(app: App, journal: Journal) -> None:
    def begin(task: Row, ctx: Context) -> tuple[str, list[Any]]:
        journal.effect(job=task.id, term=ctx.term, key=ctx.idempotency_key, content=f"task {task.id}")
        reconciler, key, _ = ctx.idempotency_key.split(":")
        return WRITE, [reconciler, key, ctx.term, os.getpid()]

    async def handle(task: Row, ctx: Context) -> None:
        write = begin(task, ctx)
        await passed()
        async with ctx.transaction(To("done")) as tx:
            await tx.execute(*write)

    async def handle_locked(task: Row, *, ctx: Context, tx: AsyncConnection[Any]) -> To:
        write = begin(task, ctx)
        await passed()
        await tx.execute(*write)
        return To("done")

    own = {"lease_columns": ("leased_by", "leased_until")}
    for mode in MODES:
        table = app.table(
            f"tasks_{mode}", key="id", state="state", changed_at="changed_at", lease_columns=own.get(mode)
        )
        options: dict[str, Any] = {"claim": "row_lock"} if mode == "row_lock" else {}
        table.reconcile(
            "pending",
            stale_for="10m",
            name=mode,
            every="500ms",
            run_at_start=True,
            lease_for=os.environ["TRUEUP_LEASE_FOR"],
            batch=10,
            concurrency=5,
            retry=RETRY,
            **options,
        )(handle_locked if mode == "row_lock" else handle)


async def run(app: App, journal: Journal) -> None:
    await work(app, app.worker(), journal)


def main() -> None:
    journal = Journal(Path(os.environ[VARIABLE]))
    app = App()
    declare(app)
    declare_rows(app, journal)
    asyncio.run(run(app, journal))
    journal.close()


if __name__ == "__main__":
    main()
