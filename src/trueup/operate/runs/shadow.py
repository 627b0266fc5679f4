"""A live reconciler in shadow for once: nothing is written to its rows, and no attempt of theirs is spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from trueup.operate.runs.results import Run
from trueup.reconcile.reconciler import Reconciler
from trueup.store.rows.quarantine import Quarantine
from trueup.store.store import Store

NO_INTERVAL = timedelta(days=365)


class Shadow(Reconciler):
    """A declared one that changes nothing for once. People are shown it as it is declared."""

    as_declared: Reconciler

    def declared(self) -> Any:
        return self.as_declared.declared()


def in_shadow(reconciler: Reconciler) -> Reconciler:
    """The same, changing nothing. Rows rest for no time at all afterwards: the next real look at them is not to be put off.
    Those that fail are let go again when the sweep has ended, and do not make the fleet rest.

    A long sweep looks again, every interval, for rows that are due again; this one has none, or it would not end.
    """
    if reconciler.mode == "shadow":
        return reconciler
    values = {each.name: getattr(reconciler, each.name) for each in dataclasses.fields(reconciler)}
    changed = {"mode": "shadow", "revisit": timedelta(), "every": NO_INTERVAL, "pause_after": None}
    shadow = Shadow(**{**values, **changed})
    object.__setattr__(shadow, "as_declared", reconciler)
    return shadow


async def unfail(store: Store, run: Run, failed: Sequence[str]) -> None:
    """What failed in the shadow of a live one has not failed: no attempt is spent, and nothing is in quarantine."""
    quarantine = Quarantine(store.pool, store.statements, store.clock)
    await quarantine.release(run.name, failed, ("quarantined", "resting"))
    for name in ("retry", "quarantined"):
        run.outcomes["unchanged"] = run.outcomes.get("unchanged", 0) + run.outcomes.get(name, 0)
        run.outcomes[name] = 0
