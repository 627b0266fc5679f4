"""How a sweep or scan by hand went, what one would have had in hand, and how far it has come meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trueup.store.db.own_connection import Record

# Rows or items seen through, and how many there were to begin with if that is known.
Progress = Callable[[int, int | None], None]


@dataclass(slots=True)
class Run:
    """How one sweep or scan by hand went.

    `ending` is `completed`, `refused` (by `max_fraction`), or how a scan ended: `stopped`, `failed`, `lost`, `elsewhere`.
    `outcomes` counts rows by what became of them; of a scan, items and failed ones since it was begun, by whomever.
    """

    name: str
    ending: str = "completed"
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    why: str | None = None  # it was refused, or failed
    proposed: dict[str, int] = field(default_factory=dict)  # in shadow mode: what would have been done, by kind
    index_ddl: str | None = None  # makes the index without which every claim reads the whole table

    @property
    def ok(self) -> bool:
        """Nothing for people to look at: it went to its end, and nothing failed for good."""
        if self.ending not in ("completed", "stopped"):
            return False
        return not (self.outcomes.get("quarantined") or self.outcomes.get("failed"))


@dataclass(slots=True)
class DryRun:
    """What a run would have in hand now, in its order. `total` counts all of it; None when there is too much, or no telling."""

    name: str
    would: str  # what would be done with each
    rows: list[Record] = field(default_factory=list)
    more: bool = False
    total: int | None = None
    why: str | None = None  # it would be refused; or the scan's generator failed

    @property
    def ok(self) -> bool:
        return self.why is None
