"""Whether a worker's memory stays flat: after many jobs, keys, dead letters, rows, ticks, leases and enqueues, each one different.

    python -m bench.memory [--units 1000000] [--only CASE] [--quick] [--json]

Each case runs in a process of its own, in ten equal parts. After each part the process collects its garbage and notes how many
blocks Python has allocated and how much memory is resident. The first parts warm up caches; what counts is the growth per unit over
the second half. A leak of one small object per unit is one block or more; the goal is a hundredth of that. Linux only.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench.jobs import run
from bench.report import parser, progress, report
from bench.server import server
from trueup import App, GiveUp, Row, To
from trueup.testing.clock import ManualClock
from trueup.testing.harness import Harness

GOAL = 0.01  # blocks per unit
PARTS = 10
SCHEDULES = 20

Part = Callable[[int, int], Awaitable[None]]  # does the units from the first number up to the second


@dataclass(frozen=True)
class Sample:
    units: int
    blocks: int
    resident: int  # bytes


def sample(units: int) -> Sample:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Sample(units, sys.getallocatedblocks(), pages * os.sysconf("SC_PAGE_SIZE"))


def growth(samples: list[Sample]) -> tuple[float, float]:
    """Blocks and bytes per unit over the second half."""
    first, last = samples[len(samples) // 2], samples[-1]
    units = last.units - first.units
    return (last.blocks - first.blocks) / units, (last.resident - first.resident) / units


class Countdown:
    """Waits until a given number of units have been handled."""

    def __init__(self) -> None:
        self._left = 0
        self._none_left = asyncio.Event()

    def one(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._none_left.set()

    async def of(self, count: int, begin: Awaitable[Any]) -> None:
        self._left += count
        self._none_left.clear()
        await begin
        await self._none_left.wait()


@asynccontextmanager
async def jobs(url: str) -> AsyncIterator[Part]:
    app, ended = App(url), Countdown()

    @app.job
    async def noop(n: int) -> None:
        ended.one()

    async with app, app.worker():
        yield lambda first, last: ended.of(last - first, noop.enqueue_many((n,) for n in range(first, last)))


@asynccontextmanager
async def keys(url: str) -> AsyncIterator[Part]:
    """Jobs that are unique, fair by a key and limited, no two with the same key."""
    app, ended = App(url), Countdown()

    @app.job(limit=1_000, fair_by="n", unique=lambda n: str(n))
    async def keyed(n: int) -> None:
        ended.one()

    async with app, app.worker():
        yield lambda first, last: ended.of(last - first, keyed.enqueue_many((n,) for n in range(first, last)))


@asynccontextmanager
async def dead_letters(url: str) -> AsyncIterator[Part]:
    app, ended = App(url), Countdown()

    @app.job
    async def failing(n: int) -> None:
        ended.one()
        raise GiveUp(f"no receiver {n}")

    async with app, app.worker():
        yield lambda first, last: ended.of(last - first, failing.enqueue_many((n,) for n in range(first, last)))


@asynccontextmanager
async def rows(url: str) -> AsyncIterator[Part]:
    """Every hundredth one fails, and is put into quarantine."""
    app, ended = App(url), Countdown()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table things (id bigint primary key, state text not null)")
        connection.execute("create index on things (state, id)")

    @app.table("things", key="id", state="state").reconcile("open", every="1s")
    async def close(row: Row) -> To:
        ended.one()
        if row["id"] % 100 == 0:
            raise GiveUp(f"no thing {row['id']}")
        return To("done")

    async def insert(first: int, last: int) -> None:
        async with app.transaction() as tx:
            await tx.execute(
                "insert into things select n, 'open' from generate_series(%s::bigint, %s::bigint) as n",
                (first, last - 1),
            )

    async with app, app.worker():
        yield lambda first, last: ended.of(last - first, insert(first, last))


@asynccontextmanager
async def ticks(url: str) -> AsyncIterator[Part]:
    """Twenty schedules, every minute of simulated time."""
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    app = App(url, clock=clock)
    for number in range(SCHEDULES):
        app.cron("* * * * *", name=f"minutely_{number}")(_nothing)
    harness = Harness(app, clock)
    async with app:

        async def some(first: int, last: int) -> None:
            ran = await harness.advance(minutes=(last - first) // SCHEDULES)
            assert ran == (last - first) // SCHEDULES * SCHEDULES, ran

        yield some
        await harness.close()


async def _nothing() -> None: ...


@asynccontextmanager
async def leases(url: str) -> AsyncIterator[Part]:
    app = App(url)
    async with app:

        async def some(first: int, last: int) -> None:
            for number in range(first, last):
                async with app.lease(f"lease-{number}"):
                    pass

        yield some


@asynccontextmanager
async def callers(url: str) -> AsyncIterator[Part]:
    """Enqueues from a hundred tasks of a program without a worker, with a rate for each thousand."""
    app = App(url)

    @app.job
    async def noop(n: int) -> None: ...

    async with app:

        async def some(first: int, last: int) -> None:
            for start in range(first, last, 100):
                await asyncio.gather(*(noop.enqueue(n) for n in range(start, min(start + 100, last))))
                if start % 1_000 == 0:
                    await app.rate(f"rate-{start}", "1000/s")

        yield some


CASES: dict[str, tuple[Callable[[str], AbstractAsyncContextManager[Part]], float]] = {  # and its share of the units
    "jobs": (jobs, 1.0),
    "keys": (keys, 0.1),
    "dead letters": (dead_letters, 0.2),
    "rows": (rows, 1.0),
    "ticks": (ticks, SCHEDULES * 1_440 / 1_000_000),  # a day of each
    "leases": (leases, 0.01),
    "callers": (callers, 0.1),
}


async def perform(name: str, url: str, units: int) -> list[Sample]:
    case, share = CASES[name]
    each = max(round(units * share) // PARTS, SCHEDULES)
    App(url).store.migrate()
    samples = []
    async with case(url) as part:
        for number in range(PARTS):
            await part(number * each, (number + 1) * each)
            await asyncio.sleep(0.1)  # what has ended is written
            samples.append(sample((number + 1) * each))
    return samples


def measure(name: str, url: str, units: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.memory", "--perform", name, "--url", url, "--units", str(units)]
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, check=False)
        if done.returncode:
            errors.seek(0)
            raise SystemExit(f"{name}: {errors.read().decode()}")
    samples = [Sample(*each) for each in json.loads(done.stdout)]
    blocks, resident = growth(samples)
    return {
        "units": samples[-1].units,
        "resident_mb": samples[-1].resident / 1e6,
        "bytes_per_unit": resident,
        "blocks_per_unit": blocks,
    }


def show(result: dict[str, Any], console: Console) -> None:
    table = Table(
        "what", "units", "resident at the end", "bytes/unit", "blocks/unit", title=f"goal: {GOAL} blocks/unit"
    )
    for name, found in result.items():
        table.add_row(
            name,
            f"{found['units']:,}",
            f"{found['resident_mb']:.0f} MB",
            f"{found['bytes_per_unit']:.1f}",
            f"{found['blocks_per_unit']:.4f}",
        )
    console.print(table)


def main() -> None:
    made = parser(__doc__, units=1_000_000)
    made.add_argument("--only", choices=CASES)
    made.add_argument("--quick", action="store_true", help="few units, to see that it works")
    made.add_argument("--perform", choices=CASES, help="be the process that is measured")
    made.add_argument("--url")
    given = made.parse_args()
    if given.perform:
        samples = run(lambda: perform(given.perform, given.url, given.units))
        json.dump([(each.units, each.blocks, each.resident) for each in samples], sys.stdout)
        return
    result = {}
    with server() as cluster:
        for number, name in enumerate([given.only] if given.only else CASES):
            progress(name)
            with psycopg.connect(cluster.url(), autocommit=True) as connection:
                connection.execute(sql.SQL("create database {}").format(sql.Identifier(f"memory_{number}")))
            result[name] = measure(name, cluster.url(f"memory_{number}"), 20_000 if given.quick else given.units)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
