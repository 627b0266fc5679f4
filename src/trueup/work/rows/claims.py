"""Claims rows for a sweep, and finds the row that the database refuses to mark.

Where a claim writes to the user's rows (`claimed_as=`, `lease_columns=`), one row that refuses it makes the whole claim fail. Then
the same rows are claimed without writing to them, and marked in halves, down to the row that is refused: that is a failed attempt
of that row, and the others are handled as if nothing had happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from trueup.reconcile.claimed import ClaimedRow
from trueup.store.db.connect import unanswered
from trueup.store.rows.rows import Batch, Rows
from trueup.work.rows.refusals import MAX_REPEATS, OutcomeUndone
from trueup.work.writing import REPEAT_PAUSE, parts, to_repeat

Claim = Callable[[bool], Awaitable[Batch]]  # with marks, or without


@dataclass(slots=True)
class Claimed:
    """`batch` has the rows to be handled."""

    batch: Batch
    refused: list[tuple[ClaimedRow, Exception]] = field(default_factory=list)
    taken: list[ClaimedRow] = field(default_factory=list)  # somebody else was there before they could be marked

    @property
    def count(self) -> int:
        return len(self.batch.rows) + len(self.refused) + len(self.taken)

    @property
    def rows(self) -> list[ClaimedRow]:
        return [*self.batch.rows, *(row for row, _ in self.refused), *self.taken]


class Claims:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._repeats = 0  # how often in a row the server has asked for a claim to be repeated

    async def claim(self, claim: Claim) -> Claimed:
        """Raises what is not about a single row, and ConfigError when the table has changed and cannot be worked on any more."""
        made = self._rows.made
        try:
            batch = await claim(True)
        except Exception as error:
            if unanswered(error):
                raise
            if not to_repeat(error) and await self._rows.changed_since(made):
                return await self.claim(claim)
            if not self._rows.marks_rows or (to_repeat(error) and self._again()):
                raise
            return await self._one_is_refused(claim)
        if batch.rows:
            self._repeats = 0
        return Claimed(batch)

    def _again(self) -> bool:
        self._repeats += 1
        return self._repeats < MAX_REPEATS

    async def _one_is_refused(self, claim: Claim) -> Claimed:
        batch = await claim(False)
        self._repeats = 0
        claimed = Claimed(batch)
        marked = await self._mark(batch.rows, claimed)
        kept = [(row, wait) for row, wait in zip(batch.rows, batch.waits, strict=True) if row.key in marked]
        batch.rows, batch.waits = [row for row, _ in kept], [wait for _, wait in kept]
        return claimed

    async def _mark(self, rows: Sequence[ClaimedRow], claimed: Claimed, repeats: int = 0) -> set[str]:
        """Keys of those that are marked now. The others are noted."""
        if not rows:
            return set()
        try:
            done = await self._rows.mark(rows[0].holder, rows)
        except Exception as error:
            if unanswered(error):
                raise
            if to_repeat(error) and repeats < (MAX_REPEATS if len(rows) == 1 else 1):
                await asyncio.sleep(REPEAT_PAUSE)
                return await self._mark(rows, claimed, repeats + 1)
            if len(rows) == 1:
                claimed.refused.append((rows[0], error))
                return set()
            return {key for part in parts(rows, error) for key in await self._mark(part, claimed)}
        claimed.refused += [(row, _kept_as_it_was(self._rows)) for row in rows if done.get(row.key) == "undone"]
        claimed.taken += [row for row in rows if done.get(row.key) in ("busy", "conflict")]
        return {key for key, answer in done.items() if answer == "changed"}


def _kept_as_it_was(rows: Rows) -> Exception:
    return OutcomeUndone(f"a trigger of table {rows.found.spec} keeps the row as it is, so it could not be claimed")
