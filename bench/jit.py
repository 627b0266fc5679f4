"""What trueup costs on a server with just-in-time compilation, as Debian, Ubuntu and the official images ship PostgreSQL.

    python -m bench.jit [--rounds 5] [--json]

The server is Debian's own PostgreSQL 15 with LLVM. Each round measures with compilation off and on, one after the other. The best of
all rounds is what counts: another process can only add to a time.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench.report import parser, progress, report
from tests.store.desk import Desk
from tests.support.debian_server import DebianServer
from tests.support.watching import until
from trueup import App

JOBS = 3_000
GOALS = {"picked_up": 0.010, "drained": 0.5}  # seconds
RATIO = 1.3


@contextmanager
def database(debian: DebianServer, jit: str) -> Iterator[str]:
    with debian.database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            name = sql.Identifier(connection.info.dbname)
            connection.execute(sql.SQL("alter database {} set jit = {}").format(name, jit))
        yield url


async def claims(app: App) -> float:
    """How long a claim takes, in the median."""
    desk = Desk(await app.open())
    await desk.put_many(200)
    holder = await desk.worker()
    took = []
    for _ in range(20):
        begin = perf_counter()
        assert await desk.claim(holder, 5)
        took.append(perf_counter() - begin)
    return statistics.median(took)


async def drained(app: App) -> float:
    """How long it takes to run jobs that do nothing."""
    left = JOBS

    @app.job
    async def nothing() -> None:
        nonlocal left
        left -= 1

    await nothing.enqueue_many(() for _ in range(left))
    begin = perf_counter()
    async with app.worker():
        await until(lambda: left == 0)
    return perf_counter() - begin


async def picked_up(app: App) -> float:
    """How long it takes until an idle worker runs a job, in the median."""
    began: list[float] = []

    @app.job
    async def now() -> None:
        began.append(perf_counter())

    took = []
    async with app.worker():
        for n in range(15):
            begin = perf_counter()
            await now.enqueue()
            await until(lambda n=n: len(began) > n)
            took.append(began[-1] - begin)
    return statistics.median(took)


MEASURES = (claims, picked_up, drained)


async def measure(debian: DebianServer, jit: str) -> dict[str, float]:
    taken = {}
    for each in MEASURES:
        with database(debian, jit) as url:
            async with App(url) as app:
                taken[each.__name__] = await each(app)
    return taken


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("seconds, best of rounds", "off", "on", "ratio", "goal")
    for name in result["on"]:
        off, on = result["off"][name], result["on"][name]
        goal = f"{GOALS[name]:g}" if name in GOALS else f"{RATIO} x off"
        table.add_row(name.replace("_", " "), f"{off:.4f}", f"{on:.4f}", f"{on / off:.2f}", goal)
    console.print(table)


def main() -> None:
    given = parser(__doc__, rounds=5).parse_args()
    best: dict[str, dict[str, float]] = {"off": {}, "on": {}}
    with tempfile.TemporaryDirectory(prefix="trueup-bench-") as directory, DebianServer(Path(directory)) as debian:
        for nth in range(1, given.rounds + 1):
            for jit, found in best.items():
                for name, seconds in asyncio.run(measure(debian, jit)).items():
                    found[name] = min(seconds, found.get(name, seconds))
            progress(f"round {nth} of {given.rounds}")
    report(best, show, as_json=given.json)


if __name__ == "__main__":
    main()
