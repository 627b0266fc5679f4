"""Jobs: drain, bulk and one-by-one enqueue, pick-up latency, idle cost; each beside the raw-SQL limit of the same run.

    python -m bench.jobs [--jobs 100000] [--rounds 3] [--json]

Only the ratios carry over to other machines. Rounds alternate between trueup and the limit; the median of each is compared.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench import raw
from bench.report import parser, progress, report
from bench.server import process_seconds, server
from trueup import App
from trueup.embedded.cluster import Cluster

BUSY = {"trueup claim": "claims", "trueup finish": "finishes"}  # by the names of their sessions
WORK = ("drain", "bulk enqueue", "one-by-one enqueue", "one-by-one, prepare=false")


def make_app(url: str, **settings: Any) -> tuple[App, Any]:
    app = App(url, schema="bench", **settings)

    @app.job
    async def noop(n: int) -> None:
        pass

    return app, noop


def run(coroutine: Callable[[], Any]) -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine())
    return uvloop.run(coroutine())


def bulk_enqueue(url: str, count: int) -> float:
    async def measure() -> float:
        app, noop = make_app(url)
        async with app:
            started = time.perf_counter()
            await noop.enqueue_many((number,) for number in range(count))
            return count / (time.perf_counter() - started)

    return float(run(measure))


def enqueue_one_by_one(url: str, count: int, *, prepare: str = "auto") -> float:
    async def measure() -> float:
        app, noop = make_app(url, prepare=prepare)
        async with app:
            started = time.perf_counter()
            for number in range(count):
                await noop.enqueue(number)
            return count / (time.perf_counter() - started)

    return float(run(measure))


def drain(url: str, count: int) -> tuple[float, dict[str, float]]:
    """Jobs per second, from the worker's start to the last job committed as done; and for which part of that time each side worked."""

    async def measure() -> tuple[float, dict[str, float]]:
        app, _ = make_app(url)
        async with app:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("analyze bench.jobs")
            worker = app.worker(concurrency=100)
            async with worker:
                started, before = time.perf_counter(), _spent(url)
                while worker.runner.started < count:  # noqa: ASYNC110 - an event per job would be part of what is measured
                    await asyncio.sleep(0.01)
                await worker.finisher.flushed()
                taken, after = time.perf_counter() - started, _spent(url)
            left = await app.store.views.queues()
            assert not left, left
            return count / taken, {part: (spent - before.get(part, 0.0)) / taken for part, spent in after.items()}

    found: tuple[float, dict[str, float]] = run(measure)
    return found


def _spent(url: str) -> dict[str, float]:
    """CPU seconds of this process, and of the sessions that claim and finish for it, so far."""
    with psycopg.connect(url, autocommit=True) as connection:
        sessions = connection.execute("select pid, application_name from pg_stat_activity").fetchall()
    found = {"worker": _cpu()}
    for pid, name in sessions:
        if name in BUSY:
            found[BUSY[name]] = process_seconds(pid)
    return found


def pick_up(url: str, count: int) -> list[float]:
    """Milliseconds from calling enqueue to the handler's first line, on an idle worker in the same process."""

    async def measure() -> list[float]:
        app = App(url, schema="bench")
        taken: list[float] = []
        arrived = asyncio.Event()
        sent = 0.0

        @app.job
        async def touch(n: int) -> None:
            taken.append((time.perf_counter() - sent) * 1000)
            arrived.set()

        async with app, app.worker(concurrency=10):
            await asyncio.sleep(1)
            for number in range(count):
                arrived.clear()
                sent = time.perf_counter()
                await touch.enqueue(number)
                await arrived.wait()
                await asyncio.sleep(0.005)
        return taken

    return list(run(measure))


def idle(cluster: Cluster, workers: int, seconds: float) -> tuple[float, float]:
    """Statements per second that the server logs, and milliseconds of CPU per second and worker, with idle workers."""

    async def measure() -> tuple[float, float]:
        apps = [make_app(cluster.url())[0] for _ in range(workers)]
        running = [app.worker(concurrency=10) for app in apps]
        for worker in running:
            await worker.start()
        await asyncio.sleep(5)  # until the first polls are over
        before, cpu_before = _statements(cluster), _cpu()
        await asyncio.sleep(seconds)
        cpu, after = _cpu() - cpu_before, _statements(cluster)
        for worker, app in zip(running, apps, strict=True):
            await worker.stop()
            await app.close()
        return (after - before) / seconds, cpu * 1000 / seconds / workers

    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("alter system set log_statement = 'all'")
        connection.execute("select pg_reload_conf()")
        try:
            result: tuple[float, float] = run(measure)
        finally:
            connection.execute("alter system reset log_statement")
            connection.execute("select pg_reload_conf()")
    return result


def _statements(cluster: Cluster) -> int:
    text = cluster.log.read_text(errors="replace")
    return text.count("LOG:  execute ") + text.count("LOG:  statement: ")


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure_all(cluster: Cluster, jobs: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    url = cluster.url()
    raw.prepare(url)
    App(url, schema="bench").store.migrate()
    result: dict[str, Any] = {}
    say("pick-up latency")
    ours_ms, raw_ms = pick_up(url, 300), raw.notify_round_trip(url, 300)
    result["pick-up"] = {
        "trueup_p50_ms": round(percentile(ours_ms, 0.5), 2),
        "trueup_p99_ms": round(percentile(ours_ms, 0.99), 2),
        "raw_p50_ms": round(percentile(raw_ms, 0.5), 2),
        "raw_p99_ms": round(percentile(raw_ms, 0.99), 2),
        "ratio_p50": round(percentile(ours_ms, 0.5) / percentile(raw_ms, 0.5), 2),
    }
    say("idle cost")
    one, cpu = idle(cluster, 1, 20)
    five, _ = idle(cluster, 5, 20)
    result["idle"] = {
        "one_worker_statements_per_s": round(one, 2),
        "five_workers_statements_per_s": round(five, 2),
        "cpu_ms_per_s": round(cpu, 2),
    }
    figures: dict[str, dict[str, list[float]]] = {name: {"trueup": [], "raw": []} for name in WORK}
    shares: list[dict[str, float]] = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        figures["bulk enqueue"]["raw"].append(raw.bulk_enqueue(url, jobs))
        figures["bulk enqueue"]["trueup"].append(bulk_enqueue(url, jobs))
        figures["drain"]["raw"].append(raw.drain(url))
        rate, busy = drain(url, jobs)
        figures["drain"]["trueup"].append(rate)
        shares.append(busy)
        figures["one-by-one enqueue"]["raw"].append(raw.enqueue_one_by_one(url, 1000))
        figures["one-by-one enqueue"]["trueup"].append(enqueue_one_by_one(url, 1000))
        figures["one-by-one, prepare=false"]["raw"].append(figures["one-by-one enqueue"]["raw"][-1])
        figures["one-by-one, prepare=false"]["trueup"].append(enqueue_one_by_one(url, 1000, prepare="false"))
        raw.drain(url)
        drain(url, 2000)
    result["busy in the drain"] = {part: round(statistics.median(one[part] for one in shares), 2) for part in shares[0]}
    for name, sides in figures.items():
        ours, limit = statistics.median(sides["trueup"]), statistics.median(sides["raw"])
        result[name] = {"trueup_per_s": round(ours), "raw_per_s": round(limit), "ratio": round(ours / limit, 2)}
    return result


def show(result: dict[str, Any], console: Console) -> None:
    table = Table("work", "trueup /s", "raw SQL /s", "ratio")
    for name in WORK:
        row = result[name]
        table.add_row(name, f"{row['trueup_per_s']:,}", f"{row['raw_per_s']:,}", f"{row['ratio']:.2f}")
    console.print(table)
    pick = result["pick-up"]
    console.print(
        f"pick-up p50 {pick['trueup_p50_ms']} ms, p99 {pick['trueup_p99_ms']} ms "
        f"(raw NOTIFY + claim: {pick['raw_p50_ms']} / {pick['raw_p99_ms']} ms)"
    )
    busy = ", ".join(f"{part} {share:.0%}" for part, share in result["busy in the drain"].items())
    console.print(f"in the drain each is busy for this part of the time, of one core: {busy}")
    calm = result["idle"]
    console.print(
        f"idle: {calm['one_worker_statements_per_s']} statements/s for one worker, {calm['five_workers_statements_per_s']} for five, "
        f"{calm['cpu_ms_per_s']} ms of CPU per second and worker"
    )


def main() -> None:
    given = parser(__doc__, jobs=100_000, rounds=3).parse_args()
    with server() as cluster:
        result = measure_all(cluster, given.jobs, given.rounds, progress)
    report(result, show, as_json=given.json)


if __name__ == "__main__":
    main()
