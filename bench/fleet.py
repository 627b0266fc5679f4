"""What a fleet of idle workers costs, directly and through PgBouncer, and how soon one of them picks up a job.

    python -m bench.fleet [--seconds 20] [--json]

Up to 500 workers run in a few processes, each worker with an App and connections of its own, as on as many machines. PgBouncer has 50
server connections, in transaction mode: no notification passes it, so workers behind it poll. Measured is a fleet that has nothing
to do: transactions per second, and CPU time as a part of one core; then the time from enqueueing a job to its claim, by the server's
clock. Linux only.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench.report import parser, progress, report
from bench.server import DURABLE, cpu_seconds, process_seconds, server
from tests.support.pgbouncer import PgBouncer
from trueup import App, Job
from trueup.embedded.cluster import Cluster

PROCESSES = 5
POOL = 50  # server connections of PgBouncer
SETTLE = 10.0  # seconds: workers have started, and their first looks are over
START_WITHIN = 300.0
PICK_UPS = 20
PAUSE = 0.2  # seconds between two of them


@dataclass(frozen=True)
class Case:
    workers: int
    pooled: bool

    @property
    def name(self) -> str:
        return f"{self.workers:,} {'worker' if self.workers == 1 else 'workers'}{', pooled' if self.pooled else ''}"


CASES = (Case(1, False), Case(5, False), Case(50, False), Case(50, True), Case(500, True))


def make_app(url: str) -> tuple[App, Job[..., Any]]:
    app = App(url)

    @app.job
    async def noop() -> None: ...

    return app, noop


async def work(url: str, count: int) -> None:
    """So many workers, until the process is killed."""
    logging.disable(logging.WARNING)  # that no notification comes through the pooler is said by each of them
    async with AsyncExitStack() as stack:
        for _ in range(count):
            app, _ = make_app(url)
            await stack.enter_async_context(app)
            await stack.enter_async_context(app.worker())
        await asyncio.Event().wait()


@contextmanager
def fleet(url: str, count: int) -> Iterator[list[int]]:
    """The ids of the processes in which so many workers run."""
    processes = min(PROCESSES, count)
    shares = [count // processes + (nth < count % processes) for nth in range(processes)]
    command = [sys.executable, "-m", "bench.fleet", "--url", url, "--workers"]
    started = [subprocess.Popen([*command, str(share)]) for share in shares]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()  # that many workers take long to leave one by one, and nothing is measured any more
            process.wait()


def measure(cluster: Cluster, case: Case, *, settle: float, seconds: float) -> dict[str, float]:
    name = f"fleet_of_{case.workers}{'_pooled' if case.pooled else ''}"
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"drop database if exists {name} with (force)".encode())
        connection.execute(f"create database {name}".encode())
    url = cluster.url(name)
    App(url).store.migrate()
    pooler = PgBouncer(url, default_pool_size=POOL, max_client_conn=10_000) if case.pooled else nullcontext()
    with pooler as pool, psycopg.connect(url, autocommit=True) as connection:

        def asked(query: str) -> Any:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return row[0]

        with fleet(url if pool is None else pool.url(name), case.workers) as processes:
            begun = time.perf_counter()
            while asked("select count(*) from trueup.workers where lease_until > now()") < case.workers:
                assert time.perf_counter() - begun < START_WITHIN, "the fleet did not start"
                time.sleep(0.5)
            started_in = time.perf_counter() - begun
            time.sleep(settle)

            def spent() -> tuple[float, float, int]:
                committed = f"select xact_commit from pg_stat_database where datname = '{name}'"
                return cpu_seconds(cluster), sum(map(process_seconds, processes)), asked(committed)

            before, begun = spent(), time.perf_counter()
            time.sleep(seconds)
            took = time.perf_counter() - begun
            servers, clients, commits = ((late - early) / took for early, late in zip(before, spent(), strict=True))
            connections = asked(f"select count(*) from pg_stat_activity where datname = '{name}'") - 1
            waits = asyncio.run(picked_up(url, connection))
        return {
            "started_in": started_in,
            "transactions": commits,
            "server": servers * 100,
            "clients": clients * 100,
            "connections": connections,
            "p50_ms": statistics.median(waits),
            "worst_ms": max(waits),
        }


async def picked_up(url: str, connection: psycopg.Connection[Any]) -> list[float]:
    """Milliseconds from enqueueing to the claim, of one job at a time."""
    app, noop = make_app(url)
    async with app:
        for _ in range(PICK_UPS):
            handle = await noop.enqueue()
            await handle.result(timeout="1m")
            await asyncio.sleep(PAUSE)
    rows = connection.execute(
        "select extract(epoch from claimed_at - enqueued_at) * 1000 from trueup.history"
    ).fetchall()
    assert len(rows) == PICK_UPS, f"{len(rows)} jobs ended"
    return [float(milliseconds) for (milliseconds,) in rows]


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("fleet", "transactions/s", "server", "all workers", "server connections", "pick-up p50", "worst")
    for name, found in result.items():
        table.add_row(
            name,
            f"{found['transactions']:.1f}",
            f"{found['server']:.1f} %",
            f"{found['clients']:.1f} %",
            f"{found['connections']:,.0f}",
            f"{found['p50_ms']:,.1f} ms",
            f"{found['worst_ms']:,.0f} ms",
        )
    console.print(table, "% of a core")


def main() -> None:
    made = parser(__doc__, seconds=20)
    made.add_argument("--url", help="be one of the processes, on this database")
    made.add_argument("--workers", type=int, help="so many workers of that process")
    given = made.parse_args()
    if given.url is not None:
        asyncio.run(work(given.url, given.workers))
        return
    result = {}
    with server({**DURABLE, "max_connections": "500"}) as cluster:
        for case in CASES:
            progress(case.name)
            result[case.name] = measure(cluster, case, settle=SETTLE, seconds=given.seconds)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
