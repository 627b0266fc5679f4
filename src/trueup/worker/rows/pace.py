"""When sweeps begin, and how one is told of; the same for those with and without handlers."""

from __future__ import annotations

import random
from datetime import timedelta

from trueup.events import SweepCompleted
from trueup.reconcile.counts import Counts
from trueup.store.reconcilers import Gate

STARTS_WITHIN = 5.0  # seconds over which the first sweeps of a fleet that starts together are spread
PAUSED_LOOK = 5.0  # seconds between looks whether a pause is over


def first_after(every: timedelta, run_at_start: bool, gate: Gate) -> float:
    """Seconds until a process's first sweep: when the fleet's last one is `every` ago, a little spread."""
    if run_at_start:
        return 0.0
    spread = random.uniform(0, min(STARTS_WITHIN, every.total_seconds() / 10))  # noqa: S311
    return spread if gate.swept_ago is None else max(0.0, every.total_seconds() - gate.swept_ago) + spread


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
