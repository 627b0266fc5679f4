"""No more rows than allowed: what a sweep by hand claims is counted, and its claims are cut to what is left."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from trueup.reconcile.counts import Counts
from trueup.store.rows.purges import Picked, Purges, Taken
from trueup.store.rows.rows import Batch, Rows
from trueup.work.rows.purger import Purger
from trueup.work.rows.sweeper import Sweeper


@dataclass(slots=True)
class Allowance:
    """How many rows may still be claimed; None: any number. `over`: none, because the run is to end."""

    left: int | None
    over: bool = False

    def at_most(self, most: int) -> int:
        return most if self.left is None else min(most, self.left)

    def spend(self, count: int) -> None:
        if self.left is not None:
            self.left = max(0, self.left - count)


class LimitedRows(Rows):
    """Rows of which no more are claimed than allowed."""

    def __init__(self, rows: Rows, allowance: Allowance) -> None:
        self.__dict__.update(vars(rows))
        self._allowance = allowance

    async def claim_fresh(self, holder: UUID, most: int, *args: Any, **more: Any) -> Batch:
        most = self._allowance.at_most(most)
        return self._counted(await super().claim_fresh(holder, most, *args, **more)) if most else Batch(exhausted=True)

    async def claim_again(self, holder: UUID, most: int, *args: Any, **more: Any) -> Batch:
        most = self._allowance.at_most(most)
        return self._counted(await super().claim_again(holder, most, *args, **more)) if most else Batch(exhausted=True)

    def _counted(self, batch: Batch) -> Batch:
        self._allowance.spend(len(batch.rows))
        return batch


class LimitedPurges(Purges):
    """Moves and deletions of no more rows than allowed."""

    def __init__(self, purges: Purges, allowance: Allowance) -> None:
        self.__dict__.update(vars(purges))
        self._allowance = allowance
        self._declared = purges.purge

    @property
    def in_a_row(self) -> bool:
        return False  # what is still allowed is known when a batch has ended

    async def take(
        self, state: str | None, counts: Counts, batches: int = 1, rows: Sequence[Picked] | None = None
    ) -> Taken:
        most = self._allowance.at_most(self._declared.batch)
        if not most:
            return Taken(over=True)
        self.purge = dataclasses.replace(self._declared, batch=most)
        taken = await super().take(state, counts, batches, rows)
        self._allowance.spend(taken.count)
        return taken


def limited(member: Sweeper | Purger, allowance: Allowance) -> None:
    if isinstance(member, Sweeper):
        member.rows = LimitedRows(member.rows, allowance)
    else:
        member.purges = LimitedPurges(member.purges, allowance)


def ease(member: Sweeper | Purger, allowance: Allowance) -> None:
    allowance.left, allowance.over = 0, True
    if isinstance(member, Sweeper):
        member.hand.give_back()
