"""Choices behind the claim and the finish, measured beside each other: `python -m bench.choices [--rows 100000]`.

Each way drains the same backlog on one connection with nothing around it. The docs quote ratios from here.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench import raw
from bench.server import server

PICK = "select {what} from raw.jobs where state = 'queued' and run_at <= now() order by run_at, id limit {batch} for update skip locked"
CLAIMS = {
    "id in (select …)": "update raw.jobs set state = 'running' where id in ({pick_id}) returning id",
    "id = any(array(select …))": "update raw.jobs set state = 'running' where id = any(array({pick_id})) returning id",
    "ctid = any(array(select …))": "update raw.jobs set state = 'running' where ctid = any(array({pick_ctid})) returning id",
}
FINISHES = {
    "update in place": "update raw.jobs set state = 'done' where id = any(%s)",
    "move to the history": raw.FINISH,
    "delete": "delete from raw.jobs where id = any(%s)",
}


def rate(url: str, claim: str, finish: str, rows: int, batch: int) -> float:
    """Rows per second of claiming and finishing a backlog."""
    raw.prepare(url)
    raw.bulk_enqueue(url, rows)
    statement = claim.format(
        pick_id=PICK.format(what="id", batch=batch), pick_ctid=PICK.format(what="ctid", batch=batch)
    )
    with raw.connect(url) as connection:
        connection.execute("analyze raw.jobs")
        started, done = time.perf_counter(), 0
        while claimed := connection.execute(statement.encode()).fetchall():
            connection.execute(finish.encode(), ([row[0] for row in claimed],))
            done += len(claimed)
        assert done == rows, f"{done} of {rows}"
        return rows / (time.perf_counter() - started)


def compare(url: str, title: str, ways: Sequence[tuple[str, str, str]], rows: int, batch: int, rounds: int) -> Table:
    figures: dict[str, list[float]] = {name: [] for name, _, _ in ways}
    for _ in range(rounds):
        for name, claim, finish in ways:
            figures[name].append(rate(url, claim, finish, rows, batch))
    first = statistics.median(figures[ways[0][0]])
    table = Table(title, "rows/s", "ratio")
    for name, taken in figures.items():
        median = statistics.median(taken)
        table.add_row(name, f"{median:,.0f}", f"{median / first:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    best = CLAIMS["ctid = any(array(select …))"]
    with server() as cluster:
        url, console = cluster.url(), Console()
        claims = [(name, claim, raw.FINISH) for name, claim in CLAIMS.items()]
        finishes = [(name, best, finish) for name, finish in FINISHES.items()]
        console.print(compare(url, "claim", claims, given.rows, given.batch, given.rounds))
        console.print(compare(url, "finish", finishes, given.rows, given.batch, given.rounds))


if __name__ == "__main__":
    main()
