"""The outcomes of a sweep's rows, counted. A no-op is not a repair, so it has its own count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from trueup.reconcile.lateness import Lateness

Count = Literal["changed", "unchanged", "conflict", "undone", "retry", "quarantined", "lost"]
OUTCOMES: tuple[str, ...] = get_args(Count)


def in_words(outcome: str) -> str:
    """An outcome in words for people: only the claim was lost, and nothing of the row."""
    return "claim lost" if outcome == "lost" else outcome


@dataclass(slots=True)
class Counts:
    claimed: int = 0
    changed: int = 0  # To, Stay and Delete that were written
    unchanged: int = 0  # Unchanged, None and Again
    conflict: int = 0  # another transaction changed or deleted the row meanwhile: nothing was written
    undone: int = 0  # a trigger of the table kept the row as it was: nothing was written, and it will be tried again
    retry: int = 0  # failed, and will be tried again
    quarantined: int = 0  # failed for good
    lost: int = 0  # the lease had passed: nothing was written
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def settled(self) -> int:
        return sum(getattr(self, name) for name in OUTCOMES)

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("claimed", *OUTCOMES)}

    def include(self, other: Counts) -> None:
        for name, count in other.as_dict().items():
            setattr(self, name, getattr(self, name) + count)
        self.lateness.include(other.lateness)
