"""What poisoned rows cost the others: one row in a hundred cannot be fixed, in twenty different ways.

    python -m bench.poison [--rows 300000] [--json]

Two tables of the same size are swept by one worker each, one after the other: a clean one, and one where every hundredth row is refused
by PostgreSQL, kept by a trigger, or fails in its handler. Measured is how long it takes until all rows that can be done are done, and the
CPU time of the worker and of the server. The ratio is that of the clean table to the poisoned one; the goal is 0.8 or more.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench.report import parser, progress, report
from bench.server import cpu_seconds, server
from trueup import App, Delete, GiveUp, Retry, Row, Stay, To
from trueup.embedded.cluster import Cluster

GOAL = 0.8
WITHIN = 1_800.0  # seconds
SQLSTATES = ("P0001", "23505", "22012", "40001", "54000", "55P03", "53100", "XX000", "57014", "42501")
TABLE = """
create table items (id int primary key, state text not null, changed_at timestamptz not null, n int check (n < 1000), note varchar(20), doc jsonb);
insert into items select i, 'stale', now() - interval '1 day' + i * interval '1 ms', 0, null, null from generate_series(1, {rows}) as i;
create index on items (state, changed_at, id);
create table refers (id int references items);
create function poison() returns trigger language plpgsql as $$ declare
  states text[] := array[{states}];
begin
  if old.id % {every} <> 0 or new.state <> 'done' then return new; end if;
  case old.id / {every} % 20
{cases}
    when 10 then return null;
    else return new;
  end case;
end $$;
create trigger poison before update on items for each row execute function poison();
vacuum analyze items
"""


def poisoned(row: Row) -> Any:
    """What the handler says to a row that cannot be fixed: ten ways, beside the eleven of the trigger."""
    match row["id"] // 100 % 20:
        case 11:
            raise ValueError("never")
        case 12:
            raise GiveUp("no such thing")
        case 13:
            return To("done", n=5_000)
        case 14:
            return To("done", note="far longer than twenty characters")
        case 15:
            return To("done", note="a\0b")
        case 16:
            return To("done", note="\ud800")
        case 17:
            return To("done", n=float("nan"))
        case 18:
            return Stay({"nowhere": 1})
        case 19:
            return Delete()
        case _:
            return To("done", n=1)


async def sweep(url: str, rows: int, every: int) -> float:
    """Seconds until all rows are done that can be."""
    app = App(url)
    retry = Retry(max_attempts=2, first="1s", jitter=False)

    @app.table("items", key="id", state="state", changed_at="changed_at").reconcile(
        "stale", stale_for="1h", every="1h", run_at_start=True, batch=1_000, concurrency=10, retry=retry, name="items"
    )
    async def items(row: Row) -> Any:
        return poisoned(row) if every and row["id"] % every == 0 else To("done", n=1)

    async with app:
        begun = time.perf_counter()
        async with app.worker(), await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            while time.perf_counter() - begun < WITHIN:
                await asyncio.sleep(0.25)
                # The last row comes last. To look through the whole table each time would cost as much as to sweep it.
                last = await connection.execute(
                    "select state from items where id = %s", (rows - (every > 0 and rows % every == 0),)
                )
                if await last.fetchone() == ("done",):
                    rest = await connection.execute(
                        "select from items where state = 'stale' and (%(every)s = 0 or id %% greatest(%(every)s, 1) <> 0) limit 1",
                        {"every": every},
                    )
                    if await rest.fetchone() is None:
                        return time.perf_counter() - begun
    raise TimeoutError(f"not all of {rows:,} rows were done within {WITHIN:g} s")


def measure(cluster: Cluster, rows: int, every: int) -> dict[str, float]:
    """Rows per second that could be done, and what they cost."""
    name = f"every_{every}"
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    url = cluster.url(name)
    App(url).store.migrate()
    cases = "\n".join(
        f"    when {n} then raise exception 'not this one' using errcode = '{state}';"
        for n, state in enumerate(SQLSTATES)
    )
    listed = ", ".join(f"'{state}'" for state in SQLSTATES)
    text = TABLE.format(rows=rows, every=every or rows + 1, states=listed, cases=cases)
    with psycopg.connect(url, autocommit=True) as connection:
        ddl, vacuum = text.rsplit(";", 1)
        connection.execute(ddl.encode())
        connection.execute(vacuum.encode())
        if every:
            connection.execute(
                "insert into refers select id from items where id %% %s = 0 and id / %s %% 20 = 19", (every, every)
            )
    done = rows - (rows // every if every else 0)
    time.sleep(1)  # a session that ends just now is in no count
    server_before, client_before = cpu_seconds(cluster), time.process_time()
    seconds = asyncio.run(sweep(url, rows, every))
    client = time.process_time() - client_before
    time.sleep(1)
    work = cpu_seconds(cluster) - server_before
    return {"rows_per_s": done / seconds, "client_cpu_s": client, "server_cpu_s": work}


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("table", "rows/s that can be done", "CPU client s", "server s", title=f"goal: ratio ≥ {GOAL}")
    for name in ("clean", "poisoned"):
        found = result[name]
        table.add_row(
            name, f"{found['rows_per_s']:,.0f}", f"{found['client_cpu_s']:.1f}", f"{found['server_cpu_s']:.1f}"
        )
    table.add_row("ratio", f"{result['ratio']:.2f}", f"{result['cpu_ratio']:.2f} together", "")
    console.print(table)


def main() -> None:
    given = parser(__doc__, rows=300_000).parse_args()
    result: dict[str, Any] = {"rows": given.rows}
    with server() as cluster:
        for name, every in (("clean", 0), ("poisoned", 100)):
            progress(name)
            result[name] = measure(cluster, given.rows, every)
    clean, poisoned = result["clean"], result["poisoned"]
    result["ratio"] = poisoned["rows_per_s"] / clean["rows_per_s"]
    cost = {name: result[name]["client_cpu_s"] + result[name]["server_cpu_s"] for name in ("clean", "poisoned")}
    result["cpu_ratio"] = cost["clean"] / cost["poisoned"]
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
