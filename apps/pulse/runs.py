"""One run of a job: under which lock it is, what it has done, how it writes, and the record of it.

The lock says who runs; what is written is fenced with its term. A run that lost its lock, to a Redis that forgot or because the
process was stopped, cannot write to the database any more once another one runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from prometheus_client import Counter

from trueup import App, Context, Lease, Retry, Tick

from . import database
from .config import Config
from .database import Tx
from .plan import Job, last_start, longest_run
from .retrying import retrying

log = logging.getLogger("pulse")

RETRY = Retry(max_attempts=20, first="1s", factor=2, cap="1m")  # of a whole run: what it has done, it does not do again

A_DAY = timedelta(days=1)
LAST_MOMENT = 0.9  # of the longest run: a check that has not ended by then is given back, and the run ends in order
LOOK_AGAIN = 1.0  # seconds, when there are rows and none of them can be had

ITEMS = Counter(
    "pulse_items",
    "What runs of a job have done: projects, reports, reminders, briefings, messages.",
    ["job", "outcome"],
)

BEGIN = """
insert into runs (job, tick, term, attempt, instance)
values (%(job)s, %(tick)s, %(term)s, %(attempt)s, %(instance)s)
"""
END = """
update runs set ended_at = clock_timestamp(), succeeded = %(succeeded)s, failed = %(failed)s
 where job = %(job)s and tick = %(tick)s and term = %(term)s
"""
BOUND = "select set_config('idle_in_transaction_session_timeout', %(ms)s::text, true)"
LATEST = "select * from runs where job = %(job)s order by began_at desc limit %(most)s"


def cron(app: App, config: Config, job: Job) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Declares a function of (tick, lease, ctx) as this job: at its times, under its lock, and never beside itself."""
    schedule = config.schedules[job.name]
    return app.cron(
        schedule,
        name=job.name,
        overlap="skip",
        missed="latest",
        retry=RETRY,
        lease="redis",
        lease_key=job.lock_key,
        lease_ttl=longest_run(schedule),
        lease_step=config.lock_ttl,
    )


def row_lease(config: Config) -> timedelta:
    """Shorter than what is left of a lock when its holder dies: the next holder can take the rows at once, too."""
    return max(config.lock_ttl / 2, timedelta(seconds=1))


@dataclass
class Run:
    app: App
    job: Job
    tick: Tick
    lease: Lease
    bound: timedelta  # for how long a transaction may do nothing
    begins_until: timedelta = A_DAY  # after its begin: nothing is begun later
    ends_by: timedelta = A_DAY  # and what was begun is given back then
    succeeded: int = 0
    failed_keys: set[int | str] = field(default_factory=set)  # one that fails twice is one
    began: float = field(default_factory=time.monotonic)

    @property
    def failed(self) -> int:
        return len(self.failed_keys)

    @property
    def done(self) -> int:
        return self.succeeded + self.failed

    @property
    def time_left(self) -> timedelta:
        """Until it is too late to begin with more: then the rest is for the next run."""
        return self.begins_until - timedelta(seconds=time.monotonic() - self.began)

    @property
    def facts(self) -> dict[str, Any]:
        """For the log."""
        return {
            "job": self.job.name,
            "tick": self.tick.due_at.isoformat(),
            "attempt": self.tick.attempt,
            "term": self.lease.term,
        }

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """Raises LostLease if another process has taken over the run; until the transaction ends, none can.

        A process that is stopped inside of it must not keep the others out for ever: the server ends it then.
        """
        async with self.app.transaction() as tx:
            await tx.execute(BOUND, {"ms": self.bound // timedelta(milliseconds=1)})
            await self.lease.fence(tx)
            yield tx

    async def in_batches(self, context: str, some: Callable[[], Awaitable[int]], *, least: int = 1) -> None:
        """Call it until it has done fewer than `least`, or it is too late to begin with more: then the rest is for the next run."""
        done = least
        while done >= least:
            if self.time_left <= timedelta():
                log.warning("Left for the next run", extra=self.facts)
                return
            done = await retrying(context, some)
            self.succeeded += done

    async def sweep(self, reconciler: str, left: Callable[[], Awaitable[int]]) -> None:
        """Until none is `left`, or it is too late to begin with more; what is left then is for the next run.

        Raises LostLease if another process has taken over the run. Every outcome of a row is fenced by the lock of this run.
        One sweep may leave some: rows go back whose lease runs out before it is their turn, because the database is slow, and
        rows that were in a process when it died can be had only when their lease has passed.
        """
        progress_at = time.monotonic()
        while remaining := await left():
            if self.time_left <= timedelta() or time.monotonic() > progress_at + self.bound.total_seconds():
                log.warning("Left for the next run", extra={**self.facts, "left": remaining})
                return
            done, grace = self.done, self.ends_by - self.begins_until
            await self.app.reconcilers.run(reconciler, within=self.time_left, drain_for=grace, lease=self.lease)
            if self.done > done:
                progress_at = time.monotonic()
            else:
                await asyncio.sleep(LOOK_AGAIN)

    async def begin(self) -> None:
        async with self.transaction() as tx:
            await self._note(tx, BEGIN)

    async def end(self, ctx: Context) -> None:
        """One commit with the end of the job: a tick that has run to its end does not run again."""
        async with ctx.transaction() as tx:
            await self.lease.fence(tx)
            await self._note(tx, END)

    async def _note(self, tx: Tx, statement: str) -> None:
        await tx.execute(
            statement,
            {
                "job": self.job.name,
                "tick": self.tick.due_at,
                "term": self.lease.term,
                "attempt": self.tick.attempt,
                "instance": f"{socket.gethostname()}:{os.getpid()}",
                "succeeded": self.succeeded,
                "failed": self.failed,
            },
        )


# Which run a reconciler's handler works for: it is called within it, but by the sweep and not by us.
current: ContextVar[Run] = ContextVar("current")


@asynccontextmanager
async def recorded(
    app: App, config: Config, job: Job, tick: Tick, lease: Lease, ctx: Context, what: str
) -> AsyncIterator[Run]:
    """Logged as `Starting scheduled {what}` and `Scheduled {what} completed: …`, and kept in `runs`. Ends the job."""
    schedule = config.schedules[job.name]
    run = Run(app, job, tick, lease, config.lock_ttl, last_start(schedule), longest_run(schedule) * LAST_MOMENT)
    log.info("[%s] Starting scheduled %s", job.title, what, extra=run.facts)
    await run.begin()
    token = current.set(run)
    try:
        yield run
    finally:
        current.reset(token)
    await run.end(ctx)
    ITEMS.labels(job.name, "succeeded").inc(run.succeeded)
    ITEMS.labels(job.name, "failed").inc(run.failed)
    duration_ms = round((time.monotonic() - run.began) * 1000)
    log.info(
        "Scheduled %s completed: %d succeeded, %d failed, duration=%dms",
        what,
        run.succeeded,
        run.failed,
        duration_ms,
        extra={**run.facts, "succeeded": run.succeeded, "failed": run.failed, "duration_ms": duration_ms},
    )


async def latest(tx: Tx, job: str, most: int) -> list[dict[str, Any]]:
    return await database.rows(tx, LATEST, {"job": job, "most": most})
