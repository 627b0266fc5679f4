"""When sweeps begin, and how they are reported; for reconcilers with and without handlers."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from psycopg import errors

from trueup.clock import Clock
from trueup.events import Events, SweepCompleted, SweepFailed
from trueup.jobs.failure import describe, type_name
from trueup.reconcile.counts import Counts
from trueup.store.rows.reconcilers import Gate, Reconcilers

STARTS_WITHIN = 5.0  # seconds over which the first sweeps of a fleet that starts together are spread
PAUSED_LOOK = 5.0  # seconds between checks whether a pause is over
LOOK_AT_GATE = 1.0  # seconds between checks for a pause during a sweep
IN_A_MESSAGE = 0.1  # seconds that the batches of one message should take at most; nothing can stop them in between
MAX_BATCHES = 16
OWN_TURN = 0.8  # of an interval: a sweep of another worker that ended within it takes the place of one's own
MAX_BEHIND = 1.0  # seconds that others wait for the worker that swept last; at least a tenth of the interval
OWN_WRITE = 0.1  # seconds that recording a sweep may take
PASSING_COSTS = 3e-6  # seconds of the server's time for each row that a walk passes over
# The share of a core that the fleet may spend on walks past known rows: little, unless the table was written to since the last one.
IDLE_SHARE, WRITTEN_SHARE = 0.01, 0.1
WALKS_WITHIN = 600.0  # seconds; a walk is never put off longer


def first_after(every: timedelta, run_at_start: bool, gate: Gate) -> float:
    """Seconds until a process's first sweep: until the fleet's last sweep is `every` ago, with some spread."""
    if run_at_start:
        return 0.0
    spread = random.uniform(0, min(STARTS_WITHIN, every.total_seconds() / 10))  # noqa: S311
    if gate.swept_ago is None:
        return spread
    swept_ago = max(0.0, gate.swept_ago)  # negative when the database's clock has been set back since
    return max(0.0, every.total_seconds() - swept_ago) + spread


def swept_elsewhere(every: timedelta, gate: Gate, own_ago: float | None) -> float | None:
    """Seconds until the next whole sweep, when another worker has ended one within this interval; None: it is this one's turn."""
    if gate.swept_ago is None or not 0 <= gate.swept_ago < every.total_seconds() * OWN_TURN:
        return None
    if own_ago is not None and own_ago <= gate.swept_ago + OWN_WRITE:
        return None  # this worker's own sweep: rows that became due during it must not wait for another interval
    # Begin after the worker that swept last, which is due by then: two workers that begin together would both sweep.
    seconds = every.total_seconds()
    latest = max(seconds / 10, min(seconds / 2, MAX_BEHIND))
    return seconds - gate.swept_ago + random.uniform(latest / 4, latest)  # noqa: S311


def is_walk_due(every: timedelta, gate: Gate, *, anywhere: bool = False) -> bool:
    """Whether a sweep is to walk past all rows again. Between walks over many resting rows, sweeps look at the first rows and behind
    the last one.

    Any row may begin to match. If the table was written to since the last walk, as far as the server knows, the next walk is due much
    sooner; and so it is when rows become due `anywhere` in the order without a write.
    """
    if gate.walked_ago is None or gate.walked_past is None or gate.walked_ago < 0:
        return True
    written = anywhere or gate.writes is None or gate.writes != gate.walked_writes
    pause = gate.walked_past * PASSING_COSTS / (WRITTEN_SHARE if written else IDLE_SHARE)
    return gate.walked_ago >= min(max(pause, every.total_seconds() * OWN_TURN), WALKS_WITHIN)


def next_batches(batches: int, took: float) -> int:
    """How many batches to send in one message, after the last message took `took` seconds: twice as many while that is quick enough."""
    allowed = int(IN_A_MESSAGE / max(took / batches, 0.001))
    return max(1, min(batches * 2, allowed, MAX_BATCHES))


async def wait_for_rate(pause: timedelta, stop: asyncio.Event, clock: Clock) -> bool:
    """Wait until the fleet's rate allows more, or until a stop. False: on a clock that stands still the wait would never end."""
    if clock.now() is not None:
        return False
    try:
        async with asyncio.timeout(max(pause.total_seconds(), 0.001)):
            await stop.wait()
    except TimeoutError:
        pass
    return True


async def report_failure(
    log: Reconcilers, events: Events, name: str, error: Exception, again: float, slow: str
) -> None:
    """Report an error that ended a sweep and is not about a single row. It is on record until a sweep succeeds.

    `again` is how many seconds later the next sweep begins, `slow` is a likely reason for a statement that took too long.
    """
    said = describe(error)
    if isinstance(error, errors.QueryCanceled):
        said = f"a statement took longer than statement_timeout; {slow} ({said})"
    try:
        await log.failed(name, f"{type_name(error)}: {said}")
    finally:
        events.emit(SweepFailed(name, type_name(error), said, again).because(error))


def completed(name: str, counts: Counts, seconds: float) -> SweepCompleted:
    lateness = counts.lateness
    return SweepCompleted(
        name,
        **counts.as_dict(),
        late=lateness.late,
        worst_lateness_s=round(lateness.worst_s, 3),
        average_lateness_s=round(lateness.average_s, 3),
        duration_ms=round(seconds * 1000, 3),
        rows_per_second=round(counts.claimed / seconds, 1) if seconds > 0 else 0.0,
    )
