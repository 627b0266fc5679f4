"""What one unit of work costs: CPU of the server, CPU of the client, and write-ahead log.

    python -m bench.cost [--units 20000] [--rounds 3] [--quick] [--json]

CPU time and WAL depend far less on how busy the machine is than throughput does, and they are what a larger installation is sized by.
The table also says how many units one core of the server can do, and how many fit into 1 MB/s of WAL. Medians of the rounds; the
first one is not counted. Linux only.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench import jobs, raw
from bench.jobs import run
from bench.reconcile import delete, lease, move, row_lock, sweep
from bench.report import parser, progress, report
from bench.server import cpu_seconds, server, wal_bytes
from trueup import App
from trueup.embedded.cluster import Cluster

CALLERS = 100
FEW = 10  # a share of the units, where each has a commit of its own


@dataclass(frozen=True)
class Case:
    name: str
    units: int
    perform: Callable[[], Any]
    prepare: Callable[[], Any] = lambda: None


def enqueue_by_callers(url: str, count: int) -> None:
    async def enqueue() -> None:
        app, noop = jobs.make_app(url)
        async with app:
            for start in range(0, count, CALLERS):
                await asyncio.gather(*(noop.enqueue(n) for n in range(start, min(start + CALLERS, count))))

    run(enqueue)


def leases(url: str, count: int) -> None:
    async def hold() -> None:
        app = App(url, schema="bench")
        async with app:
            for number in range(count):
                async with app.lease(f"lease-{number % 100}"):
                    pass

    run(hold)


def empty_queue(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate bench.jobs")


def cases(url: str, units: int) -> list[Case]:
    few = max(units // FEW, 100)

    def rows(name: str, declare: Callable[[Any], None], count: int) -> Case:
        return Case(name, count, partial(sweep, url, declare, count), partial(raw.fill_items, url, count))

    return [
        Case("job enqueued in bulk", units, partial(jobs.bulk_enqueue, url, units), partial(empty_queue, url)),
        Case("job run", units, partial(jobs.drain, url, units)),
        Case("job enqueued alone", few, partial(jobs.enqueue_one_by_one, url, few)),
        Case(f"job enqueued by {CALLERS} callers", units, partial(enqueue_by_callers, url, units)),
        rows("row moved", move, units),
        rows("row deleted", delete, units),
        rows("row handled under a lease", lease, units),
        rows("row handled under its lock", row_lock, few),
        Case("lease taken and given back", few, partial(leases, url, few)),
    ]


def measure(cluster: Cluster, case: Case) -> dict[str, float]:
    case.prepare()
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("checkpoint")
        before = wal_bytes(connection)
        server_before, client_before = cpu_seconds(cluster), time.process_time()
        case.perform()
        client, work = time.process_time() - client_before, cpu_seconds(cluster) - server_before
        written = wal_bytes(connection) - before
    return {
        "server_us": work / case.units * 1e6,
        "client_us": client / case.units * 1e6,
        "wal_bytes": written / case.units,
    }


def measure_all(cluster: Cluster, units: int, rounds: int) -> dict[str, dict[str, float]]:
    url = cluster.url()
    App(url, schema="bench").store.migrate()
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds + 1):
        progress(f"round {number} of {rounds}" if number else "warming up")
        for case in cases(url, units):
            measured = measure(cluster, case)
            if number:
                found.setdefault(case.name, []).append(measured)
    return {
        name: {what: statistics.median(each[what] for each in measured) for what in measured[0]}
        for name, measured in found.items()
    }


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("one", "server", "client", "WAL", "per server core and second", "per MB/s of WAL")
    for name, found in result.items():
        table.add_row(
            name,
            f"{found['server_us']:.0f} µs",
            f"{found['client_us']:.0f} µs",
            f"{found['wal_bytes']:.0f} B",
            f"{1e6 / found['server_us']:,.0f}",
            f"{1e6 / found['wal_bytes']:,.0f}",
        )
    console.print(table)


def main() -> None:
    made = parser(__doc__, units=20_000, rounds=3)
    made.add_argument("--quick", action="store_true", help="few units and one round, to see that it works")
    given = made.parse_args()
    if given.quick:
        given.units, given.rounds = 1_000, 1
    with server() as cluster:
        result = measure_all(cluster, given.units, given.rounds)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
