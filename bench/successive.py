"""Whether the tenth drain of a queue costs as much as the first, when autovacuum has had little time in between.

    python -m bench.successive [--jobs 50000] [--drains 10] [--naptime 60] [--json]

Each job leaves index entries behind that a claim has to pass over until a vacuum removes them, and autovacuum looks at a database
once per `autovacuum_naptime` (seconds). The server's CPU time per job, enqueued and run, is the figure to compare: throughput also
depends on what else the machine does.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench.dashboard import drained
from bench.report import parser, progress, report
from bench.server import cpu_seconds, server
from trueup.embedded.cluster import Cluster
from trueup.store.db.migrate import Migrator

DATABASE = "successive"
LEFT = "select n_dead_tup from pg_stat_user_tables where relid = 'trueup.jobs'::regclass"


def measure(cluster: Cluster, jobs: int, drains: int) -> list[dict[str, float]]:
    """For each drain: jobs per second, microseconds of the server's CPU time per job, and row versions left to vacuum after it."""
    url = cluster.url(DATABASE)
    found = []
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"drop database if exists {DATABASE}".encode())
        connection.execute(f"create database {DATABASE}".encode())
    with psycopg.connect(url, autocommit=True) as connection:
        Migrator(connection, "trueup").migrate()
        for nth in range(1, drains + 1):
            before = cpu_seconds(cluster)
            per_second = asyncio.run(drained(url, jobs))
            cpu_us = (cpu_seconds(cluster) - before) * 1e6 / jobs
            ((left,),) = connection.execute(LEFT).fetchall()
            found.append({"per_second": per_second, "cpu_us": cpu_us, "left": left})
            progress(
                f"drain {nth}: {per_second:,.0f} jobs per second, {cpu_us:.0f} µs of the server's CPU time per job"
            )
    return found


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("drain", "jobs per second", "server CPU per job", "versions to vacuum")
    for nth, each in enumerate(result["drains"], 1):
        table.add_row(str(nth), f"{each['per_second']:,.0f}", f"{each['cpu_us']:.0f} µs", f"{each['left']:,}")
    console.print(table)
    console.print(f"server CPU per job, last / first: {result['ratio']:.2f}")


def main() -> None:
    given = parser(__doc__, jobs=50_000, drains=10, naptime=60).parse_args()
    with server() as cluster:
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            connection.execute(f"alter system set autovacuum_naptime = {given.naptime}".encode())
            connection.execute("select pg_reload_conf()")
        drains = measure(cluster, given.jobs, given.drains)
    ratio = drains[-1]["cpu_us"] / drains[0]["cpu_us"]
    report({"naptime_s": given.naptime, "drains": drains, "ratio": ratio}, show, as_json=given.json)


if __name__ == "__main__":
    main()
