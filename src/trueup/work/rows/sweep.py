"""One sweep: how far it has come, and what became of its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from trueup.clock import elapsed
from trueup.reconcile.counts import Counts
from trueup.store.rows.batch import DuePosition, Position

Progress = Callable[[Counts], None]


@dataclass(slots=True)
class Walk:
    """How far a sweep has come."""

    begun_at: datetime  # rows due later than this are for the next one
    cut_off: datetime  # and so are rows due again later than this
    fresh: bool  # there may be rows that nothing is known about
    again: bool = True  # there may be rows whose time has come again
    position: Position | None = None
    due_position: DuePosition | None = None
    # From where a batch finds nothing, it goes on here: what lies between is known already.
    skip_to: Position | None = None
    complete: bool = True  # it passes over nothing unseen
    passed: int = 0  # rows that were known already

    @property
    def unfinished(self) -> bool:
        return self.again or self.fresh


@dataclass(slots=True, eq=False)
class Sweep:
    """A sweep ends when nothing is left to claim. Its rows may be settled later, beside the next one; then it is over."""

    began_at: datetime | None = None  # by the database's clock
    whole: bool = True
    progress: Progress | None = None
    counts: Counts = field(default_factory=Counts)
    started: float = field(default_factory=elapsed)
    claiming: bool = True
    suspects: set[asyncio.Task[Counts]] = field(default_factory=set)  # taken one at a time, beside it

    @property
    def settled(self) -> bool:
        """Whether it is known what became of every row that it has claimed so far."""
        return self.counts.settled >= self.counts.claimed

    @property
    def over(self) -> bool:
        return not self.claiming and self.settled

    @property
    def worth_telling(self) -> bool:
        """Passes without a change come every second."""
        return bool(self.counts.claimed) and (self.whole or self.counts.unchanged < self.counts.claimed)
