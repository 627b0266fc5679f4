"""The state of one sweep: how far it has come, and the outcomes of its rows."""

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

    begun_at: datetime  # rows that became due later are for the next sweep
    cut_off: datetime  # the same for rows that are due again
    fresh: bool  # there may be rows without a record
    again: bool = True  # there may be rows that are due again
    position: Position | None = None
    due_position: DuePosition | None = None
    # If a batch finds nothing, the walk goes on here: all rows in between have a record.
    skip_to: Position | None = None
    complete: bool = True  # it has looked at every row on its way
    passed: int = 0  # rows that have a record already

    @property
    def unfinished(self) -> bool:
        return self.again or self.fresh


@dataclass(slots=True, eq=False)
class Sweep:
    """A sweep ends when no row is left to claim. It is over when all its rows are settled, which may be during the next sweep."""

    began_at: datetime | None = None  # by the database's clock
    whole: bool = True
    progress: Progress | None = None
    counts: Counts = field(default_factory=Counts)
    started: float = field(default_factory=elapsed)
    claiming: bool = True
    suspects: set[asyncio.Task[Counts]] = field(default_factory=set)  # one row at a time, beside it

    @property
    def settled(self) -> bool:
        """Whether every row that it has claimed so far has an outcome."""
        return self.counts.settled >= self.counts.claimed

    @property
    def over(self) -> bool:
        return not self.claiming and self.settled

    @property
    def worth_telling(self) -> bool:
        """Whether the sweep is worth an event: a pass that changed nothing comes every second."""
        return bool(self.counts.claimed) and (self.whole or self.counts.unchanged < self.counts.claimed)
