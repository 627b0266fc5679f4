"""A worker process whose handlers work in two steps, with a checkpoint between them: `python -m tests.crash.stepping`.

A step is an effect elsewhere, which nothing undoes: a row of `effects`, committed at once. Rows of a shop that is `dead` fail.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from tests.crash.working import work
from tests.support.journal import VARIABLE, Journal
from trueup import App, Context, Retry, Row, To
from trueup.events import WorkerStarted

TABLES = """
create table orders (id int primary key, shop text not null, state text not null default 'new', steps int not null default 0,
                     changed_at timestamptz not null default now());
create table effects (id int not null, step int not null, process int not null);
"""
PAUSE_AFTER = 2


def declare(app: App) -> None:
    orders = app.table("orders", key="id", state="state", changed_at="changed_at")

    async def effect(row: Row, step: int) -> None:
        async with app.transaction() as tx:
            await tx.execute("insert into effects values (%s, %s, %s)", [row["id"], step, os.getpid()])

    @orders.reconcile(
        "new",
        every="200ms",
        run_at_start=True,
        concurrency=1,
        lease_for="1s",
        retry=Retry(max_attempts=10, first="50ms", cap="50ms"),
        pause_after=PAUSE_AFTER,
        pause_by="shop",
        pause_for="1h",
    )
    async def ship(row: Row, ctx: Context) -> To:
        if row["shop"] == "dead":
            await effect(row, 0)
            raise ConnectionError("the shop does not answer")
        if row["steps"] == 0:
            await effect(row, 1)
            await ctx.checkpoint(steps=1)
        await effect(row, 2)
        return To("done", steps=2)


async def main(journal: Any) -> None:
    app = App()
    declare(app)
    await work(app, app.worker(), journal, WorkerStarted)


if __name__ == "__main__":
    asyncio.run(main(Journal(Path(os.environ[VARIABLE]))))
