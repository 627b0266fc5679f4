"""Whether claims, looks, finishes and enqueues slow down with what else there is: due and delayed jobs, queues, keys, reconcilers.

    python -m bench.growth [--rows 200000] [--rounds 5] [--quick] [--json]

Each case measures the same statements, or the same drain, on a small system and on one in which something has grown. The two
sides take turns, and the median of each is compared; the ratio is large to small. The goal is 1.3.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from trueup import App, Job, Row, To
from trueup.embedded.cluster import Cluster
from trueup.store.lanes import Lanes
from trueup.testing.worker import ManualWorker

GOAL = 1.3  # times as long as in a small system
BATCH = 100
CLAIMS = 10  # a round
SETTINGS: dict[str, Any] = {
    "lease_for": "10m",
    "statement_timeout": "10m",
}  # claims are made by hand, and nobody renews

DELAYED = """
insert into trueup.jobs (kind, queue, lane, key, priority, run_at, rank, args, max_attempts, unique_key)
select {kind}, {queue}, {lane}, {key}, {priority}, t, t - make_interval(secs => {priority} * 60), '{{}}', 3, {unique_key}
  from (select n, now() + {after} + n * interval '1 ms' as t from generate_series(1, {rows}) as n) as made
"""


@dataclass(frozen=True)
class Case:
    """What grows on one side: rows, or what its worker has: `kinds` with a limit, `queues` it serves, idle `reconcilers`."""

    name: str
    fill: str = ""
    lane: str | None = None  # of the jobs that are claimed; None: the plain queue
    kinds: int = 0
    queues: int = 0
    reconcilers: int = 0
    drains: bool = False


def cases(rows: int) -> list[Case]:
    def delayed(**columns: str) -> str:
        given = {"kind": "'other'", "queue": "'default'", "lane": "'default'", "key": "''", "priority": "0"}
        given |= {"unique_key": "null", "after": "interval '10 minutes'", "rows": str(rows)}
        return DELAYED.format(**given | columns)

    fair = {"lane": "'@fair'", "key": "'key ' || n"}
    limited = {"lane": "'@limited'"}
    kinds, queues = max(rows // 200, 50), max(rows // 1000, 50)
    return [
        Case("due jobs", delayed(kind="'plain'", after="interval '-1 day'")),
        Case("unique keys", delayed(kind="'plain'", unique_key="'key ' || n")),
        Case("delayed jobs", delayed()),
        Case("delayed jobs of higher priority", delayed(priority="20")),
        Case("delayed jobs of 20 priorities", delayed(priority="n % 20")),
        Case("delayed jobs of a kind with a limit", delayed(**limited, priority="20"), lane="@limited"),
        Case("fair keys that are not due", delayed(**fair, rows=str(rows // 10)), lane="@fair"),
        Case(
            "queues with delayed jobs",
            delayed(queue=f"'q' || n % {queues}", lane=f"'q' || n % {queues}"),
            queues=queues,
        ),
        Case("idle kinds with a limit", kinds=kinds, drains=True),
        Case("idle queues", queues=queues, drains=True),
        Case("idle reconcilers", reconcilers=max(rows // 1000, 50), drains=True),
    ]


@dataclass
class Side:
    url: str
    kinds: int
    queues: int
    reconcilers: int = 0
    enqueue_ms: list[float] = field(default_factory=list)
    claim_ms: list[float] = field(default_factory=list)
    look_ms: list[float] = field(default_factory=list)
    finish_ms: list[float] = field(default_factory=list)
    drain_ms: list[float] = field(default_factory=list)


def make_app(side: Side, handle: Callable[[], None] = lambda: None) -> tuple[App, dict[str | None, Job[..., Any]]]:
    app = App(side.url, **SETTINGS)

    @app.job(name="plain")
    async def plain(n: int) -> None:
        handle()

    @app.job(name="limited", limit=1_000_000)
    async def limited(n: int) -> None: ...

    @app.job(name="fair", fair_by="n")
    async def fair(n: int) -> None: ...

    for number in range(side.kinds):
        app.job(name=f"idle_{number}", limit=1)(_nothing)
    things = app.table("things", key="id", state="state")
    for number in range(side.reconcilers):
        things.reconcile("open", every="1m", name=f"idle_{number}")(_no_outcome)
    return app, {None: plain, "@limited": limited, "@fair": fair}


async def _nothing() -> None: ...


async def _no_outcome(row: Row) -> To:
    return To("done")


def queues_of(side: Side) -> list[str]:
    return ["default", *(f"q{number}" for number in range(side.queues))]


@asynccontextmanager
async def hand_worker(side: Side) -> AsyncIterator[tuple[ManualWorker, dict[str | None, Job[..., Any]]]]:
    app, jobs = make_app(side)
    worker = ManualWorker(app, queues=queues_of(side))
    await worker.begin()
    try:
        yield worker, jobs
    finally:
        await worker.end()
        await app.close()


async def timed(step: Awaitable[Any], taken: list[float]) -> Any:
    started = time.perf_counter()
    result = await step
    taken.append((time.perf_counter() - started) * 1000)
    return result


async def statements(side: Side, case: Case) -> None:
    """Enqueues; claims, looks and finishes on the connections a worker has for them, with nothing around them."""
    async with hand_worker(side) as (manual, jobs):
        worker, job = manual.worker, jobs[case.lane]
        holder, claimer = UUID(worker.holder), worker.claimer
        unique = job.using(unique=lambda n: f"new {n}")
        for number in range(CLAIMS):
            await timed(unique.enqueue(number), side.enqueue_ms)
        await job.enqueue_many((number,) for number in range(CLAIMS, BATCH * CLAIMS))
        lanes: Lanes = claimer._lanes
        watched = {
            **dict.fromkeys(queues_of(side)),
            **{lane: each.controls for lane, each in claimer._controlled().items()},
        }
        for _ in range(CLAIMS):
            if case.lane is None:
                claim = claimer._jobs.claim(holder, job.lane, BATCH, [job.kind])
                claimed = list(await timed(claim, side.claim_ms))
            else:
                found = await timed(lanes.claim(holder, job.lane, job.controls, BATCH), side.claim_ms)
                claimed = [each for each, _ in found.jobs]
            assert len(claimed) == BATCH, f"{len(claimed)} claimed"
            await timed(worker.finisher._jobs.complete(holder, claimed, [None] * BATCH), side.finish_ms)
            assert not (await timed(lanes.waiting(watched), side.look_ms)).get("q none")


async def drain(side: Side, count: int) -> None:
    """Plain jobs, from the first start to the last end."""
    ran, enough = 0, asyncio.Event()

    def handle() -> None:
        nonlocal ran
        ran += 1
        if ran == count:
            enough.set()

    app, jobs = make_app(side, handle)
    async with app:
        await jobs[None].enqueue_many((number,) for number in range(count))
        async with app.worker(queues=queues_of(side)):
            started = time.perf_counter()
            await enough.wait()
            side.drain_ms.append((time.perf_counter() - started) * 1000)


def create(cluster: Cluster, name: str, *, kinds: int = 0, queues: int = 0, reconcilers: int = 0) -> Side:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    side = Side(cluster.url(name), kinds, queues, reconcilers)
    with psycopg.connect(side.url, autocommit=True) as connection:
        connection.execute("create table things (id bigint primary key, state text not null)")
        connection.execute("create index on things (state, id)")
    make_app(side)[0].store.migrate()
    return side


def measure(cluster: Cluster, case: Case, number: int, rounds: int, drained: int) -> dict[str, float]:
    """Ratios of large to small."""
    small = create(cluster, f"small_{number}")
    large = create(cluster, f"large_{number}", kinds=case.kinds, queues=case.queues, reconcilers=case.reconcilers)
    if case.fill:
        with psycopg.connect(large.url, autocommit=True) as connection:
            connection.execute(case.fill.encode())
    for turn in range(rounds + 1):
        for side in (small, large):
            run(partial(statements, side, case))
            if case.drains:
                run(partial(drain, side, drained))
            if turn == 0:  # the first one warms up
                side.enqueue_ms, side.claim_ms, side.look_ms, side.finish_ms, side.drain_ms = [], [], [], [], []
    ratios = {"enqueue": (small.enqueue_ms, large.enqueue_ms), "claim": (small.claim_ms, large.claim_ms)}
    ratios |= {"look": (small.look_ms, large.look_ms), "finish": (small.finish_ms, large.finish_ms)}
    ratios |= {"drain": (small.drain_ms, large.drain_ms)}
    return {
        name: statistics.median(many) / statistics.median(few) for name, (few, many) in ratios.items() if few and many
    }


def measure_all(cluster: Cluster, rows: int, rounds: int, drained: int) -> dict[str, dict[str, float]]:
    found = {}
    for number, case in enumerate(cases(rows)):
        progress(case.name)
        found[case.name] = measure(cluster, case, number, rounds, drained)
    return found


def show(result: dict[str, Any], console: Console) -> None:
    parts = ("enqueue", "claim", "look", "finish", "drain")
    table = Table("what has grown", *parts, title=f"times as long as in a small system; goal ≤ {GOAL}")
    for name, ratios in result.items():
        table.add_row(name, *(f"{ratios[part]:.2f}" if part in ratios else "" for part in parts))
    console.print(table)


def main() -> None:
    made = parser(__doc__, rows=200_000, rounds=5, drained=20_000)
    made.add_argument("--quick", action="store_true", help="few rows and one round, to see that it works")
    given = made.parse_args()
    if given.quick:
        given.rows, given.rounds, given.drained = 20_000, 1, 2_000
    with server() as cluster:
        result = measure_all(cluster, given.rows, given.rounds, given.drained)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
