"""Whether a long history and a long queue slow a worker down: claims, finishes and a drain beside those of an empty system.

    python -m bench.history [--finished 10000000] [--queued 1000000] [--jobs 50000] [--rounds 3] [--json]

Two databases on one server. In one, so many jobs have finished over the last days and so many are waiting; in the other
there are none but those that are measured. Rounds alternate between the two; the median of each is compared.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench.jobs import run
from bench.report import parser, progress, report
from bench.server import server
from trueup import App
from trueup.embedded.cluster import Cluster
from trueup.testing.worker import ManualWorker

GOAL = 1.3  # times as long as in an empty system
BATCH = 500
CLAIMS = 40  # a round
DAYS = 5  # over which the history spreads; today's partition, which is written to, has its share
SETTINGS: dict[str, Any] = {
    "keep_done": "30d",  # or the first worker would drop the days before yesterday
    "lease_for": "10m",  # claims are made by hand, and not renewed
    "statement_timeout": "10m",
}

# The shape of a job that has really been run; only what differs from job to job is made up.
FILL = """
insert into trueup.{day} ({columns})
select {values} from trueup.history as h, generate_series({first}::bigint, {last}::bigint) as n where h.id = {one}
"""


@dataclass
class Side:
    """One of the two systems, and what was measured in it."""

    name: str
    url: str
    claim_ms: list[float] = field(default_factory=list)
    finish_ms: list[float] = field(default_factory=list)
    drain_per_s: list[float] = field(default_factory=list)


def make_app(url: str, handle: Callable[[], None] = lambda: None) -> tuple[App, Any]:
    app = App(url, **SETTINGS)

    @app.job
    async def noop(n: int) -> None:
        handle()

    return app, noop


def create(cluster: Cluster, name: str) -> Side:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    make_app(cluster.url(name))[0].store.migrate()
    side = Side(name, cluster.url(name))
    run(partial(enqueue, side, 1))
    run(partial(work_off, side, 1))  # a schema's first worker makes the coming days
    return side


async def enqueue(side: Side, count: int) -> None:
    app, noop = make_app(side.url)
    async with app:
        await noop.enqueue_many((number,) for number in range(count))


async def work_off(side: Side, count: int) -> float:
    """Jobs per second, from the worker's start until so many have run; what it holds beyond them is handed back."""
    ran, enough = 0, asyncio.Event()

    def handle() -> None:
        nonlocal ran
        ran += 1
        if ran == count:
            enough.set()

    app, _ = make_app(side.url, handle)
    async with app:
        started = time.perf_counter()
        async with app.worker():
            await enough.wait()
            return count / (time.perf_counter() - started)


async def claim_and_finish(side: Side) -> None:
    """One batch after the other, by the statements that a worker sends, with nothing around them."""
    app, noop = make_app(side.url)
    worker = ManualWorker(app)
    await worker.begin()
    holder = UUID(worker.worker.holder)

    async def timed(step: Awaitable[Any], taken: list[float]) -> Any:
        started = time.perf_counter()
        result = await step
        taken.append((time.perf_counter() - started) * 1000)
        return result

    for _ in range(CLAIMS):
        jobs = await timed(app.store.jobs.claim(holder, noop.lane, BATCH, [noop.kind]), side.claim_ms)
        done = await timed(app.store.jobs.complete(holder, jobs, [None] * len(jobs)), side.finish_ms)
        assert len(jobs) == len(done) == BATCH, f"{len(jobs)} claimed, {len(done)} finished"
    await worker.end()
    await app.close()


def fill(side: Side, finished: int) -> None:
    """So many done jobs, the same number on each day, in the order in which they would have been finished."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with psycopg.connect(side.url, autocommit=True) as connection:
        ((one, finished_at),) = connection.execute("select id, finished_at from trueup.history").fetchall()
        names = [
            row[0]
            for row in connection.execute(
                "select attname from pg_attribute where attrelid = 'trueup.history'::regclass and attnum > 0 order by attnum"
            )
        ]
        each = finished // DAYS
        for day in range(DAYS):
            begins = midnight - timedelta(days=DAYS - 1 - day)
            name = _make_day(connection, begins)
            first, last = one + 1 + day * each, one + (day + 1) * each
            step = (min(finished_at, begins + timedelta(days=1)) - begins) / max(each, 1)
            moment = sql.SQL("{}::timestamptz + {}::interval * (n - {})").format(begins, step, first)
            made_up = {
                "id": sql.SQL("n"),
                **dict.fromkeys(("run_at", "enqueued_at", "claimed_at", "finished_at"), moment),
            }
            connection.execute(
                sql.SQL(FILL).format(
                    day=name,
                    columns=sql.SQL(", ").join(map(sql.Identifier, names)),
                    values=sql.SQL(", ").join(
                        made_up.get(column, sql.SQL("h.") + sql.Identifier(column)) for column in names
                    ),
                    first=first,
                    last=last,
                    one=one,
                )
            )
            progress(f"{(day + 1) * each:,} finished")
        connection.execute("select setval(pg_get_serial_sequence('trueup.jobs', 'id'), %s)", (one + finished + 1,))


def _make_day(connection: psycopg.Connection[Any], begins: datetime) -> sql.Identifier:
    """The partition of a day, made as the housekeeping would have made it in time."""
    name = f"history_done_{begins:%Y%m%d}"
    connection.execute(
        sql.SQL(
            "create table if not exists trueup.{} partition of trueup.history_done for values from ({}) to ({})"
        ).format(sql.Identifier(name), begins.isoformat(), (begins + timedelta(days=1)).isoformat())
    )
    return sql.Identifier(name)


def settle(side: Side) -> None:
    """Vacuum and write everything out now, so that it does not happen while the other is measured."""
    with psycopg.connect(side.url, autocommit=True) as connection:
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


def size(side: Side) -> str:
    with psycopg.connect(side.url) as connection:
        ((pretty, live, done),) = connection.execute(
            "select pg_size_pretty(pg_database_size(current_database())), (select count(*) from trueup.jobs), "
            "(select count(*) from trueup.history)"
        ).fetchall()
    return f"{live:,} queued, {done:,} in the history, {pretty}"


def measure_all(cluster: Cluster, finished: int, queued: int, jobs: int, rounds: int) -> dict[str, Any]:
    empty, full = create(cluster, "empty"), create(cluster, "full")
    fill(full, finished)
    progress(f"enqueueing {queued:,}")
    run(partial(enqueue, full, queued))
    for number in range(rounds):
        for side in (empty, full):
            run(partial(enqueue, side, jobs + CLAIMS * BATCH))  # as many as are taken away
            settle(side)
        for side in (empty, full) if number % 2 == 0 else (full, empty):
            progress(f"round {number + 1} of {rounds}, {side.name}")
            run(partial(claim_and_finish, side))
            side.drain_per_s.append(run(partial(work_off, side, jobs)))
    return {
        f"claim of {BATCH} ms": compared(full.claim_ms, empty.claim_ms),
        f"finish of {BATCH} ms": compared(full.finish_ms, empty.finish_ms),
        "drain jobs/s": compared(full.drain_per_s, empty.drain_per_s, more_is_better=True),
        "full": size(full),
        "empty": size(empty),
    }


def compared(full: list[float], empty: list[float], *, more_is_better: bool = False) -> dict[str, float]:
    """Medians, and how many times as long it takes in the full system."""
    ours, others = statistics.median(full), statistics.median(empty)
    ratio = others / ours if more_is_better else ours / others
    return {"full": round(ours, 2), "empty": round(others, 2), "times_as_long": round(ratio, 2), "goal": GOAL}


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("work", "full", "empty", "times as long", "goal")
    for name, row in result.items():
        if isinstance(row, dict):
            figures = (f"{row['full']:,}", f"{row['empty']:,}", f"{row['times_as_long']:.2f}", f"≤ {row['goal']:g}")
            table.add_row(name, *figures)
    console.print(table)
    console.print(f"at the end: full has {result['full']}; empty has {result['empty']}", highlight=False)


def main() -> None:
    given = parser(__doc__, finished=10_000_000, queued=1_000_000, jobs=50_000, rounds=3).parse_args()
    with server() as cluster:
        result = measure_all(cluster, given.finished, given.queued, given.jobs, given.rounds)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
