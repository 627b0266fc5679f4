"""How a sweep by hand differs from a worker's own: how many rows it may claim, whether a pause stops it, whether it writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from trueup.reconcile.reconciler import Reconciler
from trueup.store.rows.reconcilers import Gate

NO_INTERVAL = timedelta(days=365)


@dataclass(slots=True)
class SweepOptions:
    """`limit`: how many rows may still be claimed; None: any number. `force`: also while it is paused, or its breaker is open.

    `shadow`: handlers of a live reconciler are called and nothing is written to its rows. Such a sweep leaves no trace in lateness,
    outcomes and the breaker.
    """

    limit: int | None = None
    force: bool = False
    shadow: bool = False
    ended: bool = False  # nothing more is claimed, because the run is to end

    def at_most(self, rows: int) -> int:
        """How many of these may be claimed."""
        if self.ended:
            return 0
        return rows if self.limit is None else min(rows, self.limit)

    def spend(self, rows: int) -> None:
        if self.limit is not None:
            self.limit = max(0, self.limit - rows)

    @property
    def cut_short(self) -> bool:
        """Whether rows may be left that it was not allowed to claim."""
        return self.ended or self.limit == 0

    @property
    def counts(self) -> bool:
        """Whether its sweep is one of the reconciler's own, on record."""
        return not self.shadow

    def opened(self, gate: Gate) -> Gate:
        if self.force:
            gate = replace(gate, paused=False, rests_for=None)
        return replace(gate, pauses=0) if self.shadow else gate

    def of(self, declared: Reconciler) -> Reconciler:
        """The reconciler that is swept."""
        return in_shadow(declared) if self.shadow else declared


def in_shadow(reconciler: Reconciler) -> Reconciler:
    """The same, changing nothing. Rows rest for no time at all afterwards: the next real look at them is not to be put off.
    Those that fail are released when the sweep has ended, and do not open the breaker.

    A long sweep looks again, every interval, for rows that are due again; this one has none, or it would not end.
    """
    if reconciler.mode == "shadow":
        return reconciler
    return replace(reconciler, mode="shadow", revisit=timedelta(), every=NO_INTERVAL, pause_after=None)
