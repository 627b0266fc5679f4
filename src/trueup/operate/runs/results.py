"""The results of a sweep or scan by hand and of a dry run, and the progress in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trueup.store.db.own_connection import Record

# Called with the number of finished rows or items, and with their total at the beginning if it is known.
Progress = Callable[[int, int | None], None]


@dataclass(slots=True)
class Run:
    """The result of a sweep or scan by hand.

    `ending` is `completed`, `refused` (by `max_fraction`), or how a scan ended: `stopped`, `failed`, `lost`, `elsewhere`.
    `outcomes` counts rows by outcome. For a scan it counts items and failed items since the scan began, by any process.
    """

    name: str
    ending: str = "completed"
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    why: str | None = None  # why it was refused, or failed
    proposed: dict[str, int] = field(default_factory=dict)  # in shadow mode: counts of proposed outcomes, by kind
    index_ddl: str | None = None  # creates the missing index, if every claim reads the whole table

    @property
    def ok(self) -> bool:
        """Whether it needs no attention: it ran to its end, and no row or item failed for good."""
        if self.ending not in ("completed", "stopped"):
            return False
        return not (self.outcomes.get("quarantined") or self.outcomes.get("failed"))


@dataclass(slots=True)
class DryRun:
    """The rows or items that a run would take now, in its order. `total` is their number, or None if it is too large or unknown."""

    name: str
    would: str  # what the run would do with each
    rows: list[Record] = field(default_factory=list)
    more: bool = False
    total: int | None = None
    why: str | None = None  # why it would be refused, or the error of the scan's generator

    @property
    def ok(self) -> bool:
        return self.why is None
