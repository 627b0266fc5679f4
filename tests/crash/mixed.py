"""A worker process with one of everything but plain jobs: `python -m tests.crash.mixed`.

Reconcilers in all claim modes, a purge, a scan, webhooks, a schedule for every second, and a competitor for a lease of each kind.
What it does with a lease is a write that the lease fences. `TABLES` is what it all works on.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.crash import planner, receiver, scanner, sweeps
from tests.crash.fleet import PATIENT
from tests.crash.sweeps import TOLD, Sweeps
from tests.crash.working import restarted, work
from tests.support.journal import VARIABLE, Journal
from trueup import App, ConfigError, DatabaseUnavailable, LostLease, NotAcquired
from trueup.events import ScanItemFailed
from trueup.store.db.connect import RETRYABLE

BACKENDS = ("postgres", "advisory", "redis")
TTL = "2s"
USES = 8  # of a lease, before it is given back
FENCED = "insert into effects.fenced (name, term, process) values (%s, %s, %s)"
TABLES = (
    sweeps.TABLES
    + scanner.TABLES.replace("create schema effects;", "")
    + """
alter table effects.saves add at timestamptz not null default clock_timestamp();
create table effects.fenced (seq bigint generated always as identity primary key, name text not null, term bigint not null, process int not null);
create table effects.own (tx xid8 not null default pg_current_xact_id());
"""
)


async def compete(app: App, backend: str) -> None:
    """Hold the lease whenever it can be had, use it a few times, and give it back."""
    name = f"chaos-{backend}"
    while True:
        try:
            async with app.lease(name, ttl=TTL, backend=backend) as lease:  # type: ignore[arg-type]
                for _ in range(USES):
                    async with app.transaction() as tx:
                        await lease.fence(tx)
                        await tx.execute(FENCED, [name, lease.term, os.getpid()])
                    await asyncio.sleep(0.1)
        except (NotAcquired, LostLease, DatabaseUnavailable, *RETRYABLE):
            await asyncio.sleep(0.2)
        except ConfigError:  # an advisory lock behind a pooler, which is refused: others compete for it
            await asyncio.Event().wait()


class Competitors:
    """One for each kind of lease, from `start` until the application is closed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []
        app.on_close(self._end)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(compete(self._app, backend)) for backend in BACKENDS]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError):
                raise AssertionError("a competitor has ended by itself") from error


async def run(app: App, journal: Journal, competitors: Competitors) -> None:
    competitors.start()
    await work(app, app.worker(), journal, *TOLD, ScanItemFailed)


def main() -> None:
    journal = Journal(Path(os.environ[VARIABLE]))
    app = App()
    Sweeps(app, journal, retry=PATIENT).declare([*sweeps.MODES, "intents_often"])
    planner.declare(app)
    scanner.declare(app)
    receiver.declare(app)
    competitors = Competitors(app)
    restarted(lambda: run(app, journal, competitors))
    journal.close()


if __name__ == "__main__":
    main()
