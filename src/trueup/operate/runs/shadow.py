"""What is left of a sweep in the shadow of a live reconciler: nothing."""

from __future__ import annotations

from collections.abc import Sequence

from trueup.operate.runs.results import Run
from trueup.store.rows.quarantine import Quarantine
from trueup.store.store import Store


async def unfail(store: Store, run: Run, failed: Sequence[str]) -> None:
    """What failed in the shadow of a live one has not failed: no attempt is spent, and nothing is in quarantine."""
    quarantine = Quarantine(store.pool, store.statements)
    await quarantine.release(run.name, failed, ("quarantined", "resting"))
    for name in ("retry", "quarantined"):
        run.outcomes["unchanged"] = run.outcomes.get("unchanged", 0) + run.outcomes.get(name, 0)
        run.outcomes[name] = 0
