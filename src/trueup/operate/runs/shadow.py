"""Removes the traces of a shadow run of a live reconciler."""

from __future__ import annotations

from collections.abc import Sequence

from trueup.operate.runs.results import Run
from trueup.store.rows.quarantine import Quarantine
from trueup.store.store import Store


async def unfail(store: Store, run: Run, failed: Sequence[str]) -> None:
    """Rows that failed in a shadow run spend no attempt and are not quarantined: release them, and count them as unchanged."""
    quarantine = Quarantine(store.pool, store.statements)
    await quarantine.release(run.name, failed, ("quarantined", "resting"))
    for name in ("retry", "quarantined"):
        run.outcomes["unchanged"] = run.outcomes.get("unchanged", 0) + run.outcomes.get(name, 0)
        run.outcomes[name] = 0
