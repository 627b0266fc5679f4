"""What a fleet costs that has nothing to do: rows that rest, or none at all, swept every second by three workers.

    python -m bench.resting [--rows 200000] [--seconds 20] [--workers 3] [--json]

Each row is chosen by its state and known to rest for hours. The figures are the CPU time of the workers and of the server as a
part of one core, less what the same fleet takes without a reconciler. The goal is 2 % with the rows, for the whole fleet. A row that
is added meanwhile is to be done soon all the same: how long that takes is measured, too. Linux only.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench.report import parser, progress, report
from bench.server import cpu_seconds, server
from trueup import App, Row, To
from trueup.embedded.cluster import Cluster

GOAL = 2.0  # percent of a core
WARM_UP = 25.0  # seconds in which workers start and walk the table once
TABLE = """
create table things (id bigint primary key, state text not null);
create index on things (state, id);
insert into things select n, 'open' from generate_series(1, {rows}) as n;
insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)
select 'look', n::text, 'resting', now() + interval '5 h', n, 0, now(), now() from generate_series(1, {rows}) as n;
vacuum analyze things;
vacuum analyze trueup.rows
"""


def make_app(url: str, declares: bool) -> App:
    app = App(url)
    if declares:

        @app.table("things", key="id", state="state").reconcile("open", every="1s", name="look", revisit="5h")
        async def look(row: Row) -> To:
            return To("done")

    return app


def taken(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(cluster: Cluster, name: str, rows: int | None, workers: int, seconds: int) -> dict[str, float]:
    """CPU of a fleet, in percent of a core, and the seconds until a row is done that comes while it idles."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    url = cluster.url(name)
    make_app(url, False).store.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in TABLE.format(rows=rows or 0).split(";"):
            connection.execute(statement.encode())
        command = [
            sys.executable,
            "-m",
            "bench.resting",
            "--worker",
            url,
            *(["--declares"] if rows is not None else []),
        ]
        fleet = [subprocess.Popen(command) for _ in range(workers)]
        try:
            time.sleep(WARM_UP)
            clients, servers, begun = sum(map(taken, fleet)), cpu_seconds(cluster), time.perf_counter()
            time.sleep(seconds)
            took = time.perf_counter() - begun
            found = {
                "workers": (sum(map(taken, fleet)) - clients) / took * 100,
                "server": (cpu_seconds(cluster) - servers) / took * 100,
            }
            if rows is not None:
                found["new row"] = added(connection, rows + 1)
                found["old row"] = added(connection, rows // 2, "update things set state = 'done' where id = {id}")
            return found
        finally:
            for process in fleet:
                process.terminate()
            for process in fleet:
                process.wait(30)


def added(connection: psycopg.Connection[Any], key: int, before: str = "select {id}") -> float:
    """Seconds until a row is done that comes at the end, or in the middle of those that rest."""
    connection.execute(before.format(id=key).encode())
    connection.execute("delete from trueup.rows where key = %s", (str(key),))
    begun = time.perf_counter()
    connection.execute("insert into things values (%s, 'open') on conflict (id) do update set state = 'open'", (key,))
    while time.perf_counter() - begun < 90:
        if connection.execute("select state from things where id = %s", (key,)).fetchone() == ("done",):
            break
        time.sleep(0.05)
    return time.perf_counter() - begun


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("fleet", "workers", "server", "new row", "row in between", title=f"% of a core; goal ≤ {GOAL} more")
    for name, found in result.items():
        waits = (f"{found[part]:.1f} s" if part in found else "" for part in ("new row", "old row"))
        table.add_row(name, f"{found['workers']:.1f}", f"{found['server']:.1f}", *waits)
    console.print(table)


def main() -> None:
    made = parser(__doc__, rows=200_000, seconds=20, workers=3)
    made.add_argument("--worker", help="be one of the workers, on this database")
    made.add_argument("--declares", action="store_true")
    given = made.parse_args()
    if given.worker is not None:
        asyncio.run(make_app(given.worker, given.declares).worker().run())
        return
    result = {}
    with server() as cluster:
        for number, (name, rows) in enumerate(
            {"no reconciler": None, "no rows": 0, "resting rows": given.rows}.items()
        ):
            progress(name)
            result[name] = measure(cluster, f"fleet_{number}", rows, given.workers, given.seconds)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
