"""Primes, counted on a Dask cluster: `python primes.py 2000000` enqueues the parts and adds up what a worker has had counted."""

import asyncio
import os
import sys

from trueup import App
from trueup.integrations.dask import Dask

app = App()  # TRUEUP_DATABASE_URL or DATABASE_URL; without them an embedded PostgreSQL under ./.trueup
scheduler = os.environ.get("DASK_SCHEDULER")  # tcp://127.0.0.1:8786; without it, handlers run in threads of the worker
PART = 100_000


@app.job(executor=Dask(scheduler) if scheduler else None, timeout="5m")
def count_primes(start: int, stop: int) -> int:
    found = 0
    for n in range(max(start, 2), stop):
        found += all(n % divisor for divisor in range(2, int(n**0.5) + 1))
    return found


async def enqueue_parts(below: int, part: int = PART):
    parts = [(start, min(start + part, below)) for start in range(0, below, part)]
    return await asyncio.gather(*(count_primes.enqueue(start, stop) for start, stop in parts))


async def total(jobs) -> int:
    return sum([await job.result(timeout="10m") for job in jobs])


async def main(below: int) -> None:
    async with app:
        print(await total(await enqueue_parts(below)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
