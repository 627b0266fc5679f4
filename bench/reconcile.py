"""Reconcilers: moves and deletions by the database alone, and handlers by lease and by row lock, each beside what is written by hand.

    python -m bench.reconcile [--rows 100000] [--rounds 3] [--json]

The limit of a move or deletion is the same batched statement, sent in a loop. A handler that does nothing is compared with the
loop that people write: lock one row, handle it, write it, commit, as many at once. Rounds alternate between trueup and raw SQL;
the median of each is compared. Only the ratios carry over to other machines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import raw
from bench.jobs import run
from bench.server import server
from trueup import App, Row, To
from trueup.embedded.cluster import Cluster
from trueup.events import SweepCompleted

BATCH = 1_000
CONCURRENCY = 10
GOALS = {
    "move": 0.8,
    "delete": 0.8,
    "row lock": 1.0,
    "row lock, prepare=true": 1.0,
    "lease": 3.0,
    "lease, prepare=true": 3.0,
}
STALE: dict[str, Any] = {"stale_for": "10m", "every": "1h", "batch": BATCH, "run_at_start": True, "name": "bench"}


def move(items: Any) -> None:
    items.move("stale", to="done", **STALE)


def delete(items: Any) -> None:
    items.delete("stale", **STALE)


def lease(items: Any) -> None:
    @items.reconcile("stale", concurrency=CONCURRENCY, **STALE)
    async def handle(item: Row) -> To:
        return To("done")


def row_lock(items: Any) -> None:
    @items.reconcile("stale", concurrency=CONCURRENCY, claim="row_lock", **STALE)
    async def handle(item: Row) -> To:
        return To("done")


def sweep(url: str, declare: Callable[[Any], None], rows: int, *, prepare: bool = False) -> float:
    """Rows per second of one sweep over all of them, from its beginning until the last is committed."""

    async def measure() -> float:
        app = App(url, schema="bench", prepare=prepare)
        declare(app.table("items", key="id", state="state", changed_at="changed_at"))
        swept: asyncio.Future[SweepCompleted] = asyncio.get_running_loop().create_future()
        app.events.subscribe(swept.set_result, SweepCompleted)  # type: ignore[arg-type]
        async with app, app.worker():
            told = await swept
        assert told.changed == rows, told
        return told.changed / told.duration_ms * 1000

    return float(run(measure))


def measure_all(cluster: Cluster, rows: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    url, half, few = cluster.url(), max(rows // 2, 1_000), max(rows // 10, 1_000)
    App(url, schema="bench").store.migrate()
    raw.fill_items(url, 1_000)
    sweep(url, move, 1_000)  # a schema's first worker has more to do than to sweep
    figures: dict[str, dict[str, list[float]]] = {name: {"trueup": [], "raw": []} for name in GOALS}

    def note(name: str, side: str, count: int, measured: Callable[[], float]) -> float:
        raw.fill_items(url, count)
        figures[name][side].append(measured())
        return figures[name][side][-1]

    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        note("move", "raw", rows, lambda: raw.in_batches(url, raw.MOVE, BATCH))
        note("move", "trueup", rows, lambda: sweep(url, move, rows))
        note("delete", "raw", rows, lambda: raw.in_batches(url, raw.DELETE, BATCH))
        note("delete", "trueup", rows, lambda: sweep(url, delete, rows))
        for name, count in (
            ("row lock", few),
            ("lease", half),
        ):  # as many rows on both sides: dead ones slow the search down
            by_hand = note(name, "raw", count, lambda: float(run(lambda: raw.one_by_one(url, CONCURRENCY))))
            figures[f"{name}, prepare=true"]["raw"].append(by_hand)
        note("row lock", "trueup", few, lambda: sweep(url, row_lock, few))
        note("row lock, prepare=true", "trueup", few, lambda: sweep(url, row_lock, few, prepare=True))
        note("lease", "trueup", half, lambda: sweep(url, lease, half))
        note("lease, prepare=true", "trueup", half, lambda: sweep(url, lease, half, prepare=True))
    result: dict[str, Any] = {}
    for name, sides in figures.items():
        ours, limit = statistics.median(sides["trueup"]), statistics.median(sides["raw"])
        ratio = round(ours / limit, 2)
        result[name] = {"trueup_per_s": round(ours), "raw_per_s": round(limit), "ratio": ratio, "goal": GOALS[name]}
    return result


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("work", "trueup rows/s", "by hand rows/s", "ratio", "goal")
    for name, row in result.items():
        figures = (f"{row['trueup_per_s']:,}", f"{row['raw_per_s']:,}", f"{row['ratio']:.2f}", f"≥ {row['goal']:g}")
        table.add_row(name, *figures)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    console = Console(stderr=True)
    with server() as cluster:
        result = measure_all(cluster, given.rows, given.rounds, lambda text: console.print(f"[dim]{text}[/dim]"))
    if given.json:
        json.dump(result, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        show(result, Console())


if __name__ == "__main__":
    main()
