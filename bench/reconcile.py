"""Reconcilers: moves and deletions by the database alone, and handlers by lease and by row lock, each beside what is written by hand.

    python -m bench.reconcile [--rows 100000] [--rounds 3] [--json]

The limit of a move or deletion is the same batched statement, sent in a loop. A handler that does nothing is compared with the
loop that people write: lock one row, handle it, write it, commit, as many at once. psycopg prepares the loop's statements, as
trueup does those under row locks; "unprepared" is how both would run behind a pooler. Rounds alternate between trueup and raw
SQL; the median of each is compared. Only the ratios carry over to other machines. The milliseconds of CPU per row are the
client's and the server's (Linux only).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import raw
from bench.jobs import run
from bench.report import parser, progress, report
from bench.server import cpu_seconds, server
from trueup import App, Row, To
from trueup.embedded.cluster import Cluster
from trueup.events import SweepCompleted

BATCH = 1_000
CONCURRENCY = 10
GOALS = {
    "move": 0.8,
    "delete": 0.8,
    "row lock": 1.0,
    "row lock, unprepared": 1.0,
    "lease": 3.0,
}


class Measured(NamedTuple):
    per_second: float
    client_ms: float
    server_ms: float


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


def sweep(url: str, declare: Callable[[Any], None], rows: int, *, prepare: str = "auto") -> float:
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
    figures: dict[str, dict[str, list[Measured]]] = {name: {"trueup": [], "raw": []} for name in GOALS}

    def note(name: str, side: str, count: int, per_second: Callable[[], float]) -> None:
        raw.fill_items(url, count)
        before = time.process_time(), cpu_seconds(cluster)
        speed = per_second()
        used = time.process_time() - before[0], cpu_seconds(cluster) - before[1]
        figures[name][side].append(Measured(speed, *(1000 * seconds / count for seconds in used)))

    def loop(*, prepare: bool = True) -> float:
        return float(run(lambda: raw.one_by_one(url, CONCURRENCY, prepare=prepare)))

    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        note("move", "raw", rows, lambda: raw.in_batches(url, raw.MOVE, BATCH))
        note("move", "trueup", rows, lambda: sweep(url, move, rows))
        note("delete", "raw", rows, lambda: raw.in_batches(url, raw.DELETE, BATCH))
        note("delete", "trueup", rows, lambda: sweep(url, delete, rows))
        # As many rows on both sides: dead ones slow the search down.
        note("row lock", "raw", few, loop)
        note("row lock", "trueup", few, lambda: sweep(url, row_lock, few))
        note("row lock, unprepared", "raw", few, lambda: loop(prepare=False))
        note("row lock, unprepared", "trueup", few, lambda: sweep(url, row_lock, few, prepare="false"))
        note("lease", "raw", half, loop)
        note("lease", "trueup", half, lambda: sweep(url, lease, half))
    result: dict[str, Any] = {}
    for name, sides in figures.items():
        ours, limit = (Measured(*map(statistics.median, zip(*sides[side], strict=True))) for side in ("trueup", "raw"))
        result[name] = {
            "trueup_per_s": round(ours.per_second),
            "raw_per_s": round(limit.per_second),
            "ratio": round(ours.per_second / limit.per_second, 2),
            "goal": GOALS[name],
            "trueup_cpu_ms": [round(ours.client_ms, 4), round(ours.server_ms, 4)],
            "raw_cpu_ms": [round(limit.client_ms, 4), round(limit.server_ms, 4)],
        }
    return result


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("work", "trueup rows/s", "by hand rows/s", "ratio", "goal", "CPU ms per row", "by hand")
    for name, row in result.items():
        figures = (f"{row['trueup_per_s']:,}", f"{row['raw_per_s']:,}", f"{row['ratio']:.2f}", f"≥ {row['goal']:g}")
        cpu = (" + ".join(f"{ms:.3g}" for ms in row[side]) for side in ("trueup_cpu_ms", "raw_cpu_ms"))
        table.add_row(name, *figures, *cpu)
    console.print(table)


def main() -> None:
    given = parser(__doc__, rows=100_000, rounds=3).parse_args()
    with server() as cluster:
        result = measure_all(cluster, given.rows, given.rounds, progress)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
