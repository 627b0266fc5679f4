"""An application with tables of its own, for tests of commands over reconcilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PAPERS = """
from __future__ import annotations

import asyncio
from pathlib import Path

from trueup import App, GiveUp, Retry, Stay, To

app = App()
papers = app.table("papers", key="id", state="state", changed_at="changed_at")
pairs = app.table("pairs", key=("a", "b"), state="state")


@papers.reconcile("uploading", stale_for="10m", every="5m", concurrency=2, retry=Retry(max_attempts=3, first="1h", cap="1h"))
async def recover(paper):
    if paper["id"] == 5:
        raise ConnectionError("refused by postgresql://app:geheim@db/x")
    if paper["id"] == 7:
        raise GiveUp("no \\x1b[31msuch\\nobject")
    return To("stored", size=3)


@papers.reconcile("shadowed", every="5m", mode="shadow")
async def publish(paper):
    return To("published") if paper["id"] % 2 else Stay(size=1)


@papers.reconcile("slow", concurrency=1)
async def wait(paper):
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return To("stored")


papers.move("trial", to="expired", stale_for="14d", every="1h")
papers.delete("expired", "trial", stale_for="1h", max_fraction=0.1, name="too-much")


@pairs.reconcile("new")
async def pair(row):
    raise GiveUp("never")


@app.scan("objects", every="24h")
async def objects(cursor):
    for n in range(cursor or 0, 5):
        yield f"object {n}", n + 1


@objects.each
async def remove(item):
    if item == "object 3":
        raise ValueError("not this one")
"""

TABLES = """
create table papers (id int primary key, state text not null, changed_at timestamptz not null default now(), size int);
create table pairs (a text, b int, state text not null, primary key (a, b));
insert into papers select n, 'uploading', now() - interval '20 min' from generate_series(1, 10) as n;
insert into papers select n, 'trial', now() - interval '20 d' from generate_series(101, 105) as n;
insert into papers select n, 'shadowed', now() from generate_series(201, 204) as n;
insert into pairs values ('ä"x', 1, 'new'), ('b', 2, 'new'), (repeat('long ', 60), 3, 'new'), (E'\\x1b[31m\\n', 4, 'new');
"""

Query = Callable[..., Any]
