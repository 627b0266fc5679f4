"""What a Dask cluster brings for handlers that compute: the same jobs in threads of one worker, and on one and two Dask processes.

    python -m bench.dask [--jobs 40] [--milliseconds 200] [--processes 2] [--json]

Each job computes for about as many milliseconds. Measured is the time from the first claim to the last result, with one trueup worker
and the jobs enqueued before. The goal is a speed-up of 1.7 from one process to two, on two idle cores.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Executor
from contextlib import ExitStack
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

from bench.report import parser, progress, report
from bench.server import server
from trueup import App
from trueup.embedded.cluster import Cluster
from trueup.integrations.dask import Dask

GOAL = 1.7


def compute(rounds: int) -> int:
    value = 1
    for n in range(rounds):
        value = (value * 31 + n) % 1_000_003
    return value


def calibrated(milliseconds: int) -> int:
    """How many rounds take that long on this machine, by itself."""
    rounds, took = 10_000, 0.0
    while took < 0.2:
        rounds *= 2
        began = time.perf_counter()
        compute(rounds)
        took = time.perf_counter() - began
    return int(rounds * milliseconds / 1000 / took)


async def run(url: str, dask: Dask | None, jobs: int, rounds: int) -> float:
    made: list[Executor] = []

    def connected() -> Executor:
        assert dask is not None
        made.append(dask())
        return made[0]

    async with App(url) as app:
        job = app.job(executor=None if dask is None else connected)(compute)
        async with app.worker():
            await (await job.enqueue(1)).result("60s")  # everything is connected and imported
            began = time.perf_counter()
            handles = await asyncio.gather(*(job.enqueue(rounds) for _ in range(jobs)))
            for handle in handles:
                await handle.result("30m")
            return time.perf_counter() - began


def measure(cluster: Cluster, name: str, processes: int, jobs: int, rounds: int) -> dict[str, Any]:
    from distributed import LocalCluster

    progress(f"{name} …")
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
    App(cluster.url(name)).store.migrate()
    with ExitStack() as stack:
        dask = None
        if processes:
            options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "silence_logs": 50}
            local = LocalCluster(n_workers=processes, threads_per_worker=1, **options)  # type: ignore[no-untyped-call]
            dask = Dask(stack.enter_context(local).scheduler_address)
        seconds = asyncio.run(run(cluster.url(name), dask, jobs, rounds))
    return {"seconds": round(seconds, 2), "jobs_per_second": round(jobs / seconds, 2)}


def show(result: dict[str, Any], console: Console) -> None:
    table = Table(
        "handlers run", "seconds", "jobs/s", title=f"{result['jobs']} jobs that compute for {result['ms']} ms"
    )
    for name, row in result["runs"].items():
        table.add_row(name.replace("_", " "), f"{row['seconds']:g}", f"{row['jobs_per_second']:g}")
    console.print(table)
    console.print(
        f"speed-up from one Dask process to {result['processes']}: {result['speed_up']:g} (goal for two: {GOAL})"
    )


def main() -> None:
    options = parser(__doc__, jobs=40, milliseconds=200, processes=2).parse_args()
    rounds = calibrated(options.milliseconds)
    runs = {}
    with server() as cluster:
        for name, processes in (("in_threads", 0), ("one_process", 1), ("more_processes", options.processes)):
            runs[name] = measure(cluster, name, processes, options.jobs, rounds)
    result = {
        "jobs": options.jobs,
        "ms": options.milliseconds,
        "processes": options.processes,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "runs": runs,
        "speed_up": round(runs["one_process"]["seconds"] / runs["more_processes"]["seconds"], 2),
    }
    report(result, show, as_json=options.json)


if __name__ == "__main__":
    main()
