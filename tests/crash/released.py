"""A worker process that also enqueues, with a schedule for every second: `python -m tests.crash.released`.

`tests.crash.releases` runs this file in the tree of an older release, too: it uses only what that tree has.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from tests.crash import fleet, planner
from tests.support.journal import VARIABLE, Journal
from trueup import App, DatabaseUnavailable

PEACE = "PEACE"  # a file that is there once enough was enqueued
RESTARTS = 50  # while the server is away
KINDS = ("quick", "transfer", "transfer_sync", "flaky", "slow", "deliver", "limited", "choosy", "rated")


async def produce(jobs: fleet.Jobs) -> None:
    while not Path(os.environ[PEACE]).exists():
        with suppress(psycopg.Error, DatabaseUnavailable):
            await getattr(jobs, random.choice(KINDS)).enqueue_many([(n,) for n in range(random.randint(1, 10))])
        await asyncio.sleep(1)


async def run(app: App, jobs: fleet.Jobs, asked: list[int]) -> None:
    worker = app.worker()

    def stop() -> None:
        asked.append(1)
        worker.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    producing = asyncio.create_task(produce(jobs))
    try:
        await worker.run()
    finally:
        producing.cancel()
        await asyncio.gather(producing, return_exceptions=True)
        await app.close()


def main() -> None:
    journal = Journal(Path(os.environ[VARIABLE]))
    app = App()
    app.events.subscribe(journal)
    jobs = fleet.declare(app, journal)
    planner.declare(app)
    asked: list[int] = []
    for _ in range(RESTARTS):
        try:
            asyncio.run(run(app, jobs, asked))
            break
        except DatabaseUnavailable:
            if asked:
                break
            time.sleep(0.2)
    journal.close()


if __name__ == "__main__":
    main()
