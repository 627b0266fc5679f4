"""How long each page of the dashboard takes with a long history, and what live pages that stay open cost the server and workers.

    python -m bench.dashboard [--finished 1000000] [--queued 100000] [--resting 100000] [--rounds 5] [--seconds 30] [--drained 50000] [--json]

The tables are filled by the server itself. Each page is asked for as a browser does, without what the dashboard keeps for a second,
and every statement that it sends is timed. The goal is 200 ms for all statements of a page. The CPU time of the server is measured
beside it, because that does not depend on what else the machine does.

Then live pages stay open for a while, as in browser tabs, and the server's CPU time per second is measured with the sharing between
tabs in place.

Last, a process of its own serves four live pages, first over tables that rest, and then while a worker drains jobs as fast as it can,
alternately with and without them. What the pages cost is the CPU time of that process, and what the server takes more. Throughputs
are shown, too; on a machine that is busy with other work they say little.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import httpx
import psycopg
from rich.console import Console
from rich.table import Table

from bench.report import parser, progress, report
from bench.server import cpu_seconds, process_seconds, server
from trueup import App
from trueup.embedded.cluster import Cluster
from trueup.store.db.pool import Pool
from trueup.store.store import Store
from trueup.web import dashboard
from trueup.web.dashboard.source import Source
from trueup.web.guard import Application

GOAL_MS = 200.0
DAYS = 10  # that the history spreads over
PAGES = {
    "overview": "",
    "overview, 24h": "?window=24h",
    "jobs": "/jobs",
    "jobs, dead": "/jobs?state=dead",
    "jobs, one kind": "/jobs?kind=kind_7",
    "jobs, an argument": "/jobs?arg=n=77",
    "jobs, text of an error": "/jobs?error=no+such+text",
    "jobs, a kind there is not": "/jobs?kind=none",
    "one job": "/jobs/500",
    "reconcilers": "/reconcilers",
    "one reconciler": "/reconcilers/rows_0",
    "schedules": "/schedules",
    "one schedule": "/schedules/schedule_1",
    "fleet": "/fleet",
    "recovery": "/recovery",
    "queues": "/queues",
    "alerts": "/alerts",
    "audit": "/audit",
}

TABS = {
    "no page": (),
    "overview, 1 tab": ("",),
    "overview, 20 tabs": ("",) * 20,
    "jobs, 20 tabs": ("/jobs",) * 20,
    "every page once": tuple(PAGES.values()),
}

BESIDE = ("", "/jobs", "/queues", "/fleet")  # what people leave open while a backlog is worked off

FILL = (
    """insert into trueup.history (id, kind, queue, lane, key, state, priority, run_at, args, attempt, max_attempts, crashes, term, holder,
         enqueued_at, claimed_at, finished_at, errors)
       select n, 'kind_' || n % 20, 'queue_' || n % 4, 'queue_' || n % 4, '', case when n % 500 = 0 then 'dead' when n % 300 = 0 then 'cancelled' else 'done' end,
              0, t.at, jsonb_build_object('n', n), 1, 5, 0, n, gen_random_uuid(), t.at, t.at + interval '1 second', t.at + interval '3 seconds',
              case when n % 500 = 0 then '[{{"attempt": 1, "type": "ValueError", "message": "bad value"}}]'::jsonb else '[]' end
         from generate_series(1::bigint, {finished}::bigint) as n,
              lateral (select now() - ({finished}::bigint - n) * (interval '1 day' * {days} / {finished}::bigint) as at) as t""",
    """insert into trueup.jobs (kind, queue, lane, run_at, rank, args, max_attempts, id)
       select 'kind_' || n % 20, 'queue_' || n % 4, 'queue_' || n % 4, now() + n * interval '1 second', now() + n * interval '1 second',
              jsonb_build_object('n', n), 5, {finished}::bigint + n from generate_series(1::bigint, {queued}::bigint) as n""",
    """insert into trueup.rows (reconciler, key, state, due_at, term, attempt, claimed_at, changed_at)
       select 'rows_' || n % 5, n::text, 'resting', now() + interval '1 hour', 1, 1, now(), now() from generate_series(1, {resting}) as n""",
    """insert into trueup.reconcilers (name, place, declared, declared_at, last_swept_at)
       select 'rows_' || n, 'place', '{{}}', now(), now() from generate_series(0, 4) as n""",
    """insert into trueup.sweeps (reconciler, holder, started_at, ended_at, claimed, changed, unchanged, conflict, retry, quarantined, lost, late,
         worst_lateness_s, total_lateness_s, lateness)
       select 'rows_' || n % 5, gen_random_uuid(), now() - n * interval '10 seconds', now() - n * interval '10 seconds', 9, 9, 0, 0, 0, 0, 0, 0, 1, 1, '{{9}}'
         from generate_series(1, 40000) as n""",
    """insert into trueup.schedules (name, origin, state, spec, policy, kind, queue, lane, max_attempts, next_due_at, decided_until, created_at, changed_at)
       select 'schedule_' || n, 'code', 'active', '{{"kind": "cron", "expr": "*/5 * * * *", "tz": "UTC", "dst": "debian"}}', '{{}}', 'kind_1', 'queue_1', 'queue_1', 5,
              now() + interval '5 minutes', now(), now() - interval '9 days', now() - interval '9 days' from generate_series(1, 20) as n""",
    """insert into trueup.schedule_versions (name, version, since, state, spec)
       select name, 1, now() - interval '9 days', 'active', spec from trueup.schedules""",
    """insert into trueup.ticks (schedule, due_at, last_due_at, outcome, version, decided_at)
       select s.name, t.at, t.at, 'fired', 1, t.at from trueup.schedules as s,
              lateral generate_series(date_trunc('hour', now() - interval '8 days'), now(), interval '5 minutes') as t(at)""",
    "vacuum analyze",  # with what is known about the days of the history, as autovacuum leaves it
)


class Timed:
    """Milliseconds of each statement that goes through the pool."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        names = ("fetch", "fetch_kept", "fetch_steered")
        before = {name: getattr(Pool, name) for name in names}
        for name, method in before.items():
            setattr(Pool, name, self._timed(method))
        try:
            yield
        finally:
            for name, method in before.items():
                setattr(Pool, name, method)

    def _timed(self, method: Any) -> Any:
        async def timed(*given: Any, **more: Any) -> Any:
            begun = time.perf_counter()
            try:
                return await method(*given, **more)
            finally:
                self.taken.append((time.perf_counter() - begun) * 1000)

        return timed


async def measure(cluster: Cluster, url: str, rounds: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    app, timed = App(url), Timed()
    pages = dashboard.asgi({"bench": app})
    transport = httpx.ASGITransport(app=pages, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as browser:
        with timed.watching(), forgetful():
            for name, path in PAGES.items():
                sums, worsts, wholes = [], [], []
                for nth in range(rounds + 1):
                    if nth == 1:
                        cpu_before = cpu_seconds(cluster)
                    await asyncio.sleep(0)
                    timed.taken.clear()
                    begun = time.perf_counter()
                    answer = await browser.get(f"/bench{path}")
                    wholes.append((time.perf_counter() - begun) * 1000)
                    assert answer.status_code == 200, (name, answer.status_code, answer.text[:500])
                    sums.append(sum(timed.taken))
                    worsts.append(max(timed.taken, default=0.0))
                median = statistics.median
                found[name] = {
                    "statements_ms": median(sums[1:]),
                    "slowest_ms": median(worsts[1:]),
                    "server_cpu_ms": (cpu_seconds(cluster) - cpu_before) * 1000 / rounds,
                    "page_ms": median(wholes[1:]),
                }
                progress(f"{name}: {found[name]['statements_ms']:.0f} ms")
    await app.close()
    return found


async def watch(cluster: Cluster, url: str, seconds: int) -> dict[str, float]:
    """Milliseconds of the server's CPU time per second, while these pages are open and live."""
    found: dict[str, float] = {}
    app = App(url)
    pages = dashboard.asgi({"bench": app})
    for name, paths in TABS.items():
        tabs = [asyncio.create_task(stream(pages, path)) for path in paths]
        await asyncio.sleep(1 if tabs else 0)  # the first look, for which nothing is known yet, is not part of it
        before, begun = cpu_seconds(cluster), time.perf_counter()
        await asyncio.sleep(seconds)
        found[name] = (cpu_seconds(cluster) - before) * 1000 / (time.perf_counter() - begun)
        for tab in tabs:
            assert not tab.done(), (name, tab)
            tab.cancel()
        await asyncio.gather(*tabs, return_exceptions=True)
        progress(f"{name}: {found[name]:.1f} ms per second")
    await app.close()
    return found


async def stream(application: Application, path: str) -> None:
    """A tab that follows a page until it is cancelled."""
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": f"/bench{path}",
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"accept", b"text/event-stream")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200, message

    await application(scope, receive, send)


def at_rest(cluster: Cluster, url: str, seconds: int) -> dict[str, float]:
    """Milliseconds of CPU time per second that four live pages cost while nothing else is done."""
    with open_pages(url) as pid:
        server_before, process_before, begun = cpu_seconds(cluster), process_seconds(pid), time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - begun
        return {
            "server_ms": (cpu_seconds(cluster) - server_before) * 1000 / took,
            "process_ms": (process_seconds(pid) - process_before) * 1000 / took,
        }


def beside(cluster: Cluster, url: str, count: int, rounds: int) -> dict[str, float]:
    """Jobs per second, and microseconds of the server's CPU time per job (enqueued and run), without (`alone`) and with live pages (`watched`).

    `process_ms` is the CPU time per second of the process that serves them.
    """
    rates: dict[str, list[float]] = {"alone": [], "watched": []}
    taken: dict[str, list[float]] = {"alone": [], "watched": []}
    served: list[float] = []
    for nth in range(2 * rounds):
        how = "watched" if nth % 4 in (1, 2) else "alone"  # a b b a: the history grows for both alike
        with open_pages(url) if how == "watched" else nullcontext() as pid:
            before, begun, process_before = (
                cpu_seconds(cluster),
                time.perf_counter(),
                process_seconds(pid) if pid else 0,
            )
            rates[how].append(asyncio.run(drained(url, count)))
            taken[how].append((cpu_seconds(cluster) - before) * 1e6 / count)
            if pid is not None:
                served.append((process_seconds(pid) - process_before) * 1000 / (time.perf_counter() - begun))
        progress(f"{how}: {rates[how][-1]:,.0f} jobs per second")
    medians = {how: statistics.median(rates[how]) for how in rates}
    costs = {f"{how}_cpu_us": statistics.median(taken[how]) for how in taken}
    ratio = medians["watched"] / medians["alone"]
    return {**medians, **costs, "ratio": ratio, "process_ms": statistics.median(served)}


async def drained(url: str, count: int) -> float:
    """Jobs per second, from the worker's start to the last job committed as done."""
    app = App(url)

    @app.job(queue="drained")
    async def noop(n: int) -> None: ...

    async with app:
        await noop.enqueue_many((number,) for number in range(count))
        worker = app.worker(queues=["drained"], concurrency=100)
        async with worker:
            started = time.perf_counter()
            while worker.runner.started < count:  # noqa: ASYNC110 - an event per job would be part of what is measured
                await asyncio.sleep(0.01)
            await worker.finisher.flushed()
            return count / (time.perf_counter() - started)


@contextmanager
def open_pages(url: str) -> Iterator[int]:
    """Live pages of a dashboard in another process, whose id it yields."""
    spawning = multiprocessing.get_context("spawn")
    begun = spawning.Event()
    process = spawning.Process(target=_show_pages, args=(url, begun), daemon=True)
    process.start()
    try:
        assert begun.wait(60), "the pages did not open"
        assert process.pid is not None
        yield process.pid
        assert process.is_alive(), "the dashboard ended"
    finally:
        process.terminate()
        process.join()


def _show_pages(url: str, begun: Any) -> None:
    async def show() -> None:
        pages = dashboard.asgi({"bench": App(url)})
        tabs = [asyncio.create_task(stream(pages, path)) for path in BESIDE]
        await asyncio.sleep(4)  # the first looks, for which nothing is known yet, are not part of it
        begun.set()
        await asyncio.gather(*tabs)

    asyncio.run(show())


@contextmanager
def forgetful() -> Iterator[None]:
    """What the dashboard keeps for a moment is dropped with every request."""
    before = Source.open

    async def opened(source: Source) -> Store:
        source.forget()
        return await before(source)

    Source.open = opened  # type: ignore[method-assign]
    try:
        yield
    finally:
        Source.open = before  # type: ignore[method-assign]


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("page", "all statements", "slowest", "server CPU", "the page")
    for name, each in result["pages"].items():
        late = " !" if each["statements_ms"] > GOAL_MS else ""
        table.add_row(
            name, *(f"{each[key]:,.0f} ms" for key in ("statements_ms", "slowest_ms", "server_cpu_ms", "page_ms")), late
        )
    console.print(table)
    table = Table("live pages", "server CPU per second")
    for name, taken in result["live"].items():
        table.add_row(name, f"{taken:,.1f} ms")
    console.print(table)
    rest = result["at_rest"]
    table = Table("four live pages", "server CPU per second", "CPU per second of the process that serves them")
    table.add_row("at rest", f"{rest['server_ms']:,.1f} ms", f"{rest['process_ms']:,.1f} ms")
    drain = result["beside"]
    more = (drain["watched_cpu_us"] - drain["alone_cpu_us"]) * drain["watched"] / 1000
    table.add_row("beside a worker that drains jobs", f"{more:,.1f} ms more", f"{drain['process_ms']:,.1f} ms")
    console.print(table)
    table = Table("a worker that drains jobs", "jobs per second", "server CPU per job")
    for how in ("alone", "watched"):
        table.add_row(how, f"{drain[how]:,.0f}", f"{drain[f'{how}_cpu_us']:,.0f} µs")
    console.print(table, f"watched / alone: {drain['ratio']:.2f}")


def main() -> None:
    given = parser(
        __doc__, finished=1_000_000, queued=100_000, resting=100_000, rounds=5, seconds=30, drained=50_000
    ).parse_args()
    with server() as cluster:
        url = cluster.url("postgres")
        App(url).store.migrate()
        progress("filling the tables")
        sizes = {"finished": given.finished, "queued": given.queued, "resting": given.resting, "days": DAYS}
        with psycopg.connect(url, autocommit=True) as connection:
            # Autovacuum that is interrupted while one statement loads all of it leaves BRIN ranges that match everything.
            connection.execute("alter system set autovacuum = off")
            connection.execute("select pg_reload_conf()")
            for statement in FILL:
                connection.execute(statement.format(**sizes).encode())
        pages = asyncio.run(measure(cluster, url, given.rounds))
        live = asyncio.run(watch(cluster, url, given.seconds))
        rest = at_rest(cluster, url, given.seconds)
        compared = beside(cluster, url, given.drained, given.rounds)
    report(
        {"sizes": vars(given), "pages": pages, "live": live, "at_rest": rest, "beside": compared},
        show,
        as_json=given.json,
    )


if __name__ == "__main__":
    main()
