"""When sweeps begin, and how one is told of; the same for those with and without handlers."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

from trueup.clock import Clock
from trueup.events import SweepCompleted
from trueup.reconcile.counts import Counts
from trueup.store.reconcilers import Gate

STARTS_WITHIN = 5.0  # seconds over which the first sweeps of a fleet that starts together are spread
PAUSED_LOOK = 5.0  # seconds between looks whether a pause is over
LOOK_AT_GATE = 1.0  # seconds between looks, during a sweep, whether there is a pause
IN_A_MESSAGE = 0.1  # seconds that the batches of one message should take at most: nothing can be stopped in between
MOST_BATCHES = 16


def first_after(every: timedelta, run_at_start: bool, gate: Gate) -> float:
    """Seconds until a process's first sweep: when the fleet's last one is `every` ago, a little spread."""
    if run_at_start:
        return 0.0
    spread = random.uniform(0, min(STARTS_WITHIN, every.total_seconds() / 10))  # noqa: S311
    if gate.swept_ago is None:
        return spread
    swept_ago = max(0.0, gate.swept_ago)  # ahead of now: the database's clock has been set back since
    return max(0.0, every.total_seconds() - swept_ago) + spread


def next_batches(batches: int, took: float) -> int:
    """How many batches to ask for together, after as many took so many seconds: twice as many while that is quick enough."""
    allowed = int(IN_A_MESSAGE / max(took / batches, 0.001))
    return max(1, min(batches * 2, allowed, MOST_BATCHES))


async def wait_for_rate(pause: timedelta, stop: asyncio.Event, clock: Clock) -> bool:
    """Until the fleet's rate may allow more, or a stop. False: on a clock that stands still, that would be for ever."""
    if clock.now() is not None:
        return False
    try:
        async with asyncio.timeout(max(pause.total_seconds(), 0.001)):
            await stop.wait()
    except TimeoutError:
        pass
    return True


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
