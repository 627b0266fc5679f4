"""How a sweep by hand differs from a worker's own: how many rows it may claim, whether a pause stops it, whether it writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from trueup.reconcile.reconciler import Reconciler
from trueup.store.rows.reconcilers import Gate

NO_INTERVAL = timedelta(days=365)


@dataclass(slots=True)
class SweepOptions:
    """`limit` is how many rows may still be claimed; None: any number. With `force` the sweep runs during a pause, too.

    With `shadow`, the handlers of a live reconciler are called, and nothing is written to its rows. Such a sweep leaves no trace in
    lateness, outcomes and the breaker.
    """

    limit: int | None = None
    force: bool = False
    shadow: bool = False
    ended: bool = False  # the run is to end, so no more rows are claimed

    def at_most(self, rows: int) -> int:
        """How many rows may be claimed, at most this many."""
        if self.ended:
            return 0
        return rows if self.limit is None else min(rows, self.limit)

    def spend(self, rows: int) -> None:
        if self.limit is not None:
            self.limit = max(0, self.limit - rows)

    @property
    def cut_short(self) -> bool:
        """Whether it may have left rows because of its limit, or because it was ended."""
        return self.ended or self.limit == 0

    def opened(self, gate: Gate) -> Gate:
        if self.force:
            gate = replace(gate, paused=False, rests_for=None)
        return replace(gate, pauses=0) if self.shadow else gate

    def of(self, declared: Reconciler) -> Reconciler:
        """The reconciler that is swept."""
        return in_shadow(declared) if self.shadow else declared


def in_shadow(reconciler: Reconciler) -> Reconciler:
    """The same reconciler without writes. Its rows do not rest afterwards, so the next real sweep finds them as they were.
    Rows that fail are released when the sweep has ended, and do not open the breaker.

    A long sweep looks for rows that are due again after each interval. This one has no interval, because it would never end.
    """
    if reconciler.mode == "shadow":
        return reconciler
    return replace(reconciler, mode="shadow", revisit=timedelta(), every=NO_INTERVAL, pause_after=None)
