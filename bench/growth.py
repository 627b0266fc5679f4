"""Whether work slows down with what else there is: jobs that are due, delayed or dead, queues, keys, schedules, rows, workers.

    python -m bench.growth [--rows 200000] [--rounds 5] [--only NAME] [--quick] [--json]

Each case measures the same steps, or the same drain, on a small system and on one in which something has grown. The two sides take
turns, and the median of each is compared; the ratio is large to small, and for payloads it is that of the time per byte. The goal
is 1.3. `bench.history` does the same for millions of finished jobs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Column, Table

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
STEPS = ("enqueue", "claim", "finish", "look", "plan", "check", "sweep", "start", "drain")
PER_BYTE = ("enqueue", "claim", "finish")
SETTINGS: dict[str, Any] = {
    "lease_for": "10m",
    "statement_timeout": "10m",
}  # claims are made by hand, and not renewed

PLAIN, LIMITED, FAIR, HEAVY = "plain", "@limited", "@fair", "heavy"

DELAYED = """
insert into trueup.jobs (kind, queue, lane, key, priority, run_at, rank, args, max_attempts, unique_key)
select {kind}, {queue}, {lane}, {key}, {priority}, t, t - make_interval(secs => {priority} * 60), '{{}}', 3, {unique_key}
  from (select n, now() + {after} + n * interval '1 ms' as t from generate_series(1, {rows}) as n) as made
"""

DEAD = """
insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes, term, enqueued_at, finished_at, errors)
select -n, 'plain', 'default', 'default', '', 'dead', 0, t, '{{}}', 3, 3, 0, 3, t, t, '[]'
  from (select n, now() - interval '1 day' - n * interval '1 ms' as t from generate_series(1, {rows}) as n) as made
"""
SCHEDULES = """
insert into trueup.schedules (name, origin, spec, policy, kind, queue, lane, max_attempts, next_due_at, decided_until, created_at, changed_at)
select 'many ' || n, 'people', '{{"kind": "cron", "expr": "0 13 * * *", "tz": "UTC", "dst": "debian"}}', '{{}}', 'plain', 'default', 'default', 4,
       now() + interval '1 day', now(), now(), now() from generate_series(1, {rows}) as n
"""
ROWS = """
insert into things select n, 'open' from generate_series(1, {rows}) as n;
insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)
select 'sweep', n::text, case when n % 2 = 0 then 'resting' else 'quarantined' end, now() + interval '5 h', n, 1, now(), now()
  from generate_series(1, {rows}) as n
"""
WORKERS = """
insert into trueup.workers (holder, host, pid, queues, concurrency, started_at, renewed_at, lease_until)
select gen_random_uuid(), 'host ' || n, n, '{{default}}', 50, now(), now(), now() + interval '1 day' from generate_series(1, {rows}) as n
"""
NEW_ROWS = 20  # a sweep
KB, MB = 1_000, 1_000_000


@dataclass(frozen=True)
class Case:
    """What grows on one side: rows, `payload`, or what its worker has: `kinds` with a limit, `queues` it serves, `reconcilers`."""

    name: str
    fill: str = ""
    of: str = PLAIN  # which jobs are claimed
    kinds: int = 0
    queues: int = 0
    reconcilers: int = 0
    payload: int = KB  # bytes of one argument of a heavy job
    analyzed: bool = True
    sweeps: bool = False
    starts: bool = False
    drains: bool = False


def cases(rows: int) -> list[Case]:
    def delayed(**columns: str) -> str:
        given = {"kind": "'other'", "queue": "'default'", "lane": "'default'", "key": "''", "priority": "0"}
        given |= {"unique_key": "null", "after": "interval '10 minutes'", "rows": str(rows)}
        return DELAYED.format(**given | columns)

    fair = {"lane": "'@fair'", "key": "'key ' || n"}
    limited = {"lane": "'@limited'"}
    burst = delayed(**fair, kind="'fair'", after="interval '-1 day'", rows=str(rows // 2))
    kinds, queues = max(rows // 200, 50), max(rows // 1000, 50)
    return [
        Case("due jobs", delayed(kind="'plain'", after="interval '-1 day'")),
        Case("unique keys", delayed(kind="'plain'", unique_key="'key ' || n")),
        Case("delayed jobs", delayed()),
        Case("delayed jobs of higher priority", delayed(priority="20")),
        Case("delayed jobs of 20 priorities", delayed(priority="n % 20")),
        Case("delayed jobs of a kind with a limit", delayed(**limited, priority="20"), of=LIMITED),
        Case("fair keys that are not due", delayed(**fair, rows=str(rows // 10)), of=FAIR),
        Case("fair keys that are due, before ANALYZE", burst, of=FAIR, analyzed=False),
        Case(
            "queues with delayed jobs",
            delayed(queue=f"'q' || n % {queues}", lane=f"'q' || n % {queues}"),
            queues=queues,
        ),
        Case("idle kinds with a limit", kinds=kinds, drains=True),
        Case("idle queues", queues=queues, drains=True),
        Case("idle reconcilers", reconcilers=max(rows // 1000, 50), drains=True),
        Case("dead letters", DEAD.format(rows=rows)),
        Case("schedules", SCHEDULES.format(rows=rows // 20)),
        Case("rows that rest or are quarantined", ROWS.format(rows=rows), sweeps=True),
        Case("workers", WORKERS.format(rows=max(rows // 400, 50))),
        Case("declared kinds", kinds=kinds, starts=True),
        Case("payload, per byte", of=HEAVY, payload=MB),
    ]


@dataclass
class Side:
    url: str
    kinds: int = 0
    queues: int = 0
    reconcilers: int = 0
    payload: int = KB
    taken: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # milliseconds of each step


def make_app(side: Side, handle: Callable[[], None] = lambda: None) -> tuple[App, dict[str, Job[..., Any]]]:
    app = App(side.url, **SETTINGS)

    @app.job(name="plain")
    async def plain(n: int) -> None:
        handle()

    @app.job(name="limited", limit=1_000_000)
    async def limited(n: int) -> None: ...

    @app.job(name="fair", fair_by="n")
    async def fair(n: int) -> None: ...

    @app.job(name="heavy")
    async def heavy(n: int, data: str) -> None: ...

    for number in range(side.kinds):
        app.job(name=f"idle_{number}", limit=1)(_nothing)
    things = app.table("things", key="id", state="state")
    things.reconcile("open", every="1m", name="sweep")(_done)
    for number in range(side.reconcilers):
        things.reconcile("closed", every="1m", name=f"idle_{number}")(_done)
    return app, {PLAIN: plain, LIMITED: limited, FAIR: fair, HEAVY: heavy}


async def _nothing() -> None: ...


async def _done(row: Row) -> To:
    return To("done")


def queues_of(side: Side) -> list[str]:
    return ["default", *(f"q{number}" for number in range(side.queues))]


@asynccontextmanager
async def hand_worker(side: Side) -> AsyncIterator[tuple[ManualWorker, dict[str, Job[..., Any]]]]:
    app, jobs = make_app(side)
    worker = ManualWorker(app, queues=queues_of(side))
    await worker.begin()
    try:
        yield worker, jobs
    finally:
        await worker.end()
        await app.close()


async def timed(side: Side, step: str, work: Awaitable[Any]) -> Any:
    started = time.perf_counter()
    result = await work
    side.taken[step].append((time.perf_counter() - started) * 1000)
    return result


async def steps(side: Side, case: Case) -> None:
    """One by one, on the connections that a worker has for them, with nothing around them."""
    async with hand_worker(side) as (manual, jobs):
        await jobs_live(side, case, manual, jobs[case.of])
        for _ in range(CLAIMS):
            await timed(side, "plan", manual.app.store.schedules.plan())
            await timed(side, "check", manual.app.check())
        if case.sweeps:
            await rows_live(side, manual)


async def jobs_live(side: Side, case: Case, manual: ManualWorker, job: Job[..., Any]) -> None:
    """Jobs are enqueued, looked for, claimed and finished."""
    worker, data = manual.worker, ("x" * side.payload,) if case.of is HEAVY else ()
    holder, claimer = UUID(worker.holder), worker.claimer
    batch = BATCH // 10 if case.of is HEAVY else BATCH
    unique = job.using(unique=lambda n, **_: f"new {n}")
    for number in range(CLAIMS):
        await timed(side, "enqueue", unique.enqueue(number, *data))
    await job.enqueue_many((number, *data) for number in range(CLAIMS, batch * CLAIMS))
    lanes: Lanes = claimer._lanes
    limited = {lane: each.controls for lane, each in claimer._controlled().items()}
    for _ in range(CLAIMS):
        if job.controls.any:
            found = await timed(side, "claim", lanes.claim(holder, job.lane, job.controls, batch))
            claimed = [each for each, _ in found.jobs]
        else:
            claimed = list(await timed(side, "claim", claimer._jobs.claim(holder, job.lane, batch, [job.kind])))
        assert len(claimed) == batch, f"{len(claimed)} claimed"
        await timed(side, "finish", worker.finisher._jobs.complete(holder, claimed, [None] * batch))
        await timed(side, "look", lanes.waiting({**dict.fromkeys(queues_of(side)), **limited}))


async def rows_live(side: Side, manual: ManualWorker) -> None:
    """Rows are handled in sweeps, each with a few that have just come."""
    with psycopg.connect(side.url, autocommit=True) as connection:
        for _ in range(CLAIMS):
            connection.execute(
                "insert into things select m.id + n, 'open' from (select coalesce(max(id), 0) as id from things) as m,"
                " generate_series(1, %s) as n",
                (NEW_ROWS,),
            )
            counts = await timed(side, "sweep", manual.sweep("sweep"))
            assert counts.changed == NEW_ROWS, counts


async def start(side: Side) -> None:
    """From declaring everything to a registered worker."""

    async def begin() -> None:
        async with hand_worker(side):
            pass

    await timed(side, "start", begin())


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
        await jobs[PLAIN].enqueue_many((number,) for number in range(count))
        async with app.worker(queues=queues_of(side)):
            started = time.perf_counter()
            await enough.wait()
            side.taken["drain"].append((time.perf_counter() - started) * 1000)


def create(cluster: Cluster, name: str, **has: int) -> Side:
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    side = Side(cluster.url(name), **has)
    with psycopg.connect(side.url, autocommit=True) as connection:
        connection.execute("create table things (id bigint primary key, state text not null)")
        connection.execute("create index on things (state, id)")
    make_app(side)[0].store.migrate()
    return side


def measure(cluster: Cluster, case: Case, number: int, rounds: int, drained: int) -> dict[str, float]:
    """Ratios of large to small."""
    small = create(cluster, f"small_{number}")
    grown = {"kinds": case.kinds, "queues": case.queues, "reconcilers": case.reconcilers, "payload": case.payload}
    large = create(cluster, f"large_{number}", **grown)
    with psycopg.connect(large.url, autocommit=True) as connection:
        for statement in filter(None, case.fill.split(";")):
            connection.execute(statement.encode())
        if case.fill and case.analyzed:
            connection.execute("vacuum analyze")
    for turn in range(rounds + 1):
        for side in (small, large):
            run(partial(steps, side, case))
            if case.starts:
                run(partial(start, side))
            if case.drains:
                run(partial(drain, side, drained))
            if turn == 0:  # the first one warms up
                side.taken.clear()
    bytes_more = large.payload / small.payload
    return {
        step: statistics.median(large.taken[step]) / statistics.median(taken) / (bytes_more if step in PER_BYTE else 1)
        for step, taken in small.taken.items()
    }


def measure_all(
    cluster: Cluster, rows: int, rounds: int, drained: int, only: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    found = {}
    for number, case in enumerate(cases(rows)):
        if not only or case.name.startswith(tuple(only)):
            progress(case.name)
            found[case.name] = measure(cluster, case, number, rounds, drained)
    return found


def show(result: dict[str, Any], console: Console) -> None:
    table = Table(
        Column("what has grown", no_wrap=True), *STEPS, title=f"times as long as in a small system; goal ≤ {GOAL}"
    )
    for name, ratios in result.items():
        table.add_row(name, *(f"{ratios[step]:.2f}" if step in ratios else "" for step in STEPS))
    console.width = max(console.width, 120)  # where it is not a terminal
    console.print(table)


def main() -> None:
    made = parser(__doc__, rows=200_000, rounds=5, drained=20_000)
    made.add_argument("--only", action="append", default=[], metavar="NAME", help="cases whose names begin so")
    made.add_argument("--quick", action="store_true", help="few rows and one round, to see that it works")
    given = made.parse_args()
    if given.quick:
        given.rows, given.rounds, given.drained = 20_000, 1, 2_000
    with server() as cluster:
        result = measure_all(cluster, given.rows, given.rounds, given.drained, given.only)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
