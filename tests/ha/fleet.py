"""A worker process as the failover runs have it: `python -m tests.ha.fleet`.

It has the jobs, the rows in three claim modes and the schedule of `tests.crash.gated`, whose gate is open here, and competes for
a lease. Each use of the lease is a line in its journal, with the fencing token.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.crash import gated
from tests.crash.working import work
from tests.support.journal import VARIABLE, Journal
from trueup import App, DatabaseUnavailable, LostLease, NotAcquired
from trueup.store.db.connect import RETRYABLE

LEADER = "leader"
TTL = "3s"
USE_EVERY = 0.2  # seconds
AGAIN_AFTER = 0.3


async def lead(app: App, journal: Journal) -> None:
    """Hold the lease whenever it can be had, and use it all the time."""
    while True:
        try:
            async with app.lease(LEADER, ttl=TTL) as lease:
                while True:
                    lease.check()
                    journal.note(held=LEADER, term=lease.term)
                    await asyncio.sleep(USE_EVERY)
        except (NotAcquired, LostLease, DatabaseUnavailable, *RETRYABLE):
            await asyncio.sleep(AGAIN_AFTER)


async def run(app: App, journal: Journal) -> None:
    leading = asyncio.create_task(lead(app, journal))
    try:
        await work(app, app.worker(), journal)
    finally:
        leading.cancel()
        await asyncio.wait([leading])
        if not leading.cancelled():
            leading.result()  # it has ended by itself, and says why


def main() -> None:
    journal = Journal(Path(os.environ[VARIABLE]))
    app = App()
    gated.declare(app)
    gated.declare_rows(app, journal)
    asyncio.run(run(app, journal))
    journal.close()


if __name__ == "__main__":
    main()
