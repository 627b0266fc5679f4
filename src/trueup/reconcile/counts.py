"""What became of the rows of a sweep. A no-op is not a repair, so it is counted apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from trueup.reconcile.lateness import Lateness


@dataclass(slots=True)
class Counts:
    claimed: int = 0
    changed: int = 0  # To, Stay and Delete that were written
    unchanged: int = 0  # Unchanged, None and Again
    conflict: int = 0  # somebody else moved, touched or deleted the row meanwhile: nothing was written
    retry: int = 0  # failed, and will be tried again
    quarantined: int = 0  # failed for good
    lost: int = 0  # the lease had passed: nothing was written
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def settled(self) -> int:
        return self.changed + self.unchanged + self.conflict + self.retry + self.quarantined + self.lost

    def as_dict(self) -> dict[str, int]:
        names = ("claimed", "changed", "unchanged", "conflict", "retry", "quarantined", "lost")
        return {name: getattr(self, name) for name in names}
