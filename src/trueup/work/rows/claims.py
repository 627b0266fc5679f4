"""Claims rows for a sweep, and finds the row that the database refuses to mark.

A claim that writes to the user's rows (`claimed_as=`, `lease_columns=`) fails as a whole when PostgreSQL refuses one of these writes.
The same rows are then claimed without marks and marked in halves, down to the culprit, which gets a failed attempt. The other rows
are handled as usual. The same search follows when claims end their connections again and again, or take too long, and a claim without
marks does not: a trigger may be slow for one row, or wait for a lock. Rows that are marked quickly come first; the slow ones follow, one
by one, as long as the leases of the others allow it.
A row that cannot even be read, or for which `where=` raises, is passed over (`evaluation`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from trueup.clock import elapsed
from trueup.events import Events
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import TIMED_OUT, is_away, is_locked_out, unanswered
from trueup.store.rows.batch import Batch
from trueup.store.rows.kept import keeps_state
from trueup.store.rows.rows import Rows
from trueup.work.rows.evaluation import Evaluation, may_be_where, took_too_long
from trueup.work.rows.refusals import MAX_REPEATS, OutcomeUndone
from trueup.work.rows.sweep import Walk
from trueup.work.writing import REPEAT_PAUSE, SLOW, ConnectionEnded, parts, to_repeat

MAX_ROUNDS = 20  # searches for rows that raise, per claim; each takes a second at most
FEW = 32  # rows that are marked together, after a claim that took too long
ClaimBatch = Callable[[bool], Awaitable[Batch]]  # with marks, or without


@dataclass(slots=True)
class Claimed:
    """`batch` has the rows to be handled."""

    batch: Batch
    refused: list[tuple[ClaimedRow, Exception]] = field(default_factory=list)
    # Changed or locked by others before they could be marked, or out of time.
    taken: list[ClaimedRow] = field(default_factory=list)

    @property
    def rows(self) -> list[ClaimedRow]:
        return [*self.batch.rows, *(row for row, _ in self.refused), *self.taken]


class Claims:
    def __init__(self, rows: Rows, events: Events) -> None:
        self._rows = rows
        self.evaluation = Evaluation(rows, events)
        self._repeats = 0  # claims in a row that the server has asked to repeat
        self._breaks = 0  # claims without an answer since the last search for a culprit

    async def claim(self, claim: ClaimBatch, walk: Walk, counts: Counts, rounds: int = MAX_ROUNDS) -> Claimed:
        """Raises what is not about a single row, and ConfigError when the table has changed and cannot be worked on any more.

        `walk`: how far the sweep has come. Rows that cannot even be claimed are counted here.
        """
        made, begun = self._rows.made, elapsed()
        try:
            batch = await claim(True)
        except Exception as error:
            if unanswered(error):
                self._breaks += 1
                claimed = (
                    await self._one_is_refused(claim) if self._breaks > MAX_REPEATS and self._rows.marks_rows else None
                )
                if claimed is None:
                    raise
                return claimed
            if not to_repeat(error) and await self._rows.changed_since(made, refusal=error):
                return await self.claim(claim, walk, counts)
            slow = took_too_long(error, begun)
            if (to_repeat(error) and self._again()) or (slow and is_locked_out(error) and await self._rows.is_locked()):
                raise
            claimed = await self._one_is_refused(claim, slow=slow) if self._rows.marks_rows else None
            if claimed is not None:
                return claimed
            if (slow and not may_be_where(self._rows, error)) or not rounds:
                raise
            if not await self.evaluation.past(walk, counts, slow=slow):
                raise
            return await self.claim(claim, walk, counts, rounds - 1)
        if batch.rows:
            self._repeats = 0
        return Claimed(batch)

    def _again(self) -> bool:
        self._repeats += 1
        return self._repeats < MAX_REPEATS

    async def _one_is_refused(self, claim: ClaimBatch, *, slow: bool = False) -> Claimed | None:
        """Claim without marks, then mark the rows in parts to find the culprit. None: claims without marks are refused, too."""
        try:
            batch = await claim(False)
        except Exception as error:
            if unanswered(error):
                raise
            return None
        self._repeats = self._breaks = 0
        claimed = Claimed(batch)
        marked = await (self._mark_slow_ones_last if slow else self._mark)(batch.rows, claimed)
        kept = [(row, wait) for row, wait in zip(batch.rows, batch.waits, strict=True) if row.key in marked]
        batch.rows, batch.waits = [row for row, _ in kept], [wait for _, wait in kept]
        return claimed

    async def _mark(
        self, rows: Sequence[ClaimedRow], claimed: Claimed, repeats: int = 0, slow: list[ClaimedRow] | None = None
    ) -> set[str]:
        """Mark these rows. Returns the keys that were marked; the others are noted in `claimed`, or in `slow` if it is given."""
        if not rows:
            return set()
        begun = elapsed()
        try:
            done = await self._rows.claims.mark(rows[0].holder, rows, briefly=slow is not None)
        except Exception as error:
            if unanswered(error):
                await self._rows.claiming.fetch(b"select 1")  # raises if the server itself is away
            if is_away(error) and repeats < (MAX_REPEATS if len(rows) == 1 else 1):
                await asyncio.sleep(REPEAT_PAUSE)
                return await self._mark(rows, claimed, repeats + 1, slow)
            if is_locked_out(error) and await self._rows.is_locked():
                claimed.taken += rows
                return set()
            if len(rows) == 1:
                if slow is not None and isinstance(error, TIMED_OUT):
                    slow.append(rows[0])
                    return set()
                if is_locked_out(error) and took_too_long(error, begun):
                    claimed.taken.append(rows[0])
                    return set()
                claimed.refused.append((rows[0], _why(self._rows, error)))
                return set()
            if slow is None and elapsed() - begun >= SLOW:  # a row that is slow would slow down each part that it is in
                return await self._mark_slow_ones_last(rows, claimed)
            return {key for part in parts(rows, error) for key in await self._mark(part, claimed, slow=slow)}
        claimed.refused += [(row, _kept_as_it_was(self._rows)) for row in rows if done.get(row.key) == "undone"]
        claimed.taken += [row for row in rows if done.get(row.key) in ("busy", "conflict")]
        return {key for key, answer in done.items() if answer == "changed"}

    async def _mark_slow_ones_last(self, rows: Sequence[ClaimedRow], claimed: Claimed) -> set[str]:
        slow: list[ClaimedRow] = []
        marked: set[str] = set()
        for first in range(0, len(rows), FEW):
            marked |= await self._mark(rows[first : first + FEW], claimed, slow=slow)
        for row in slow:
            if row.trust.left(self._rows.clock.elapsed()) < self._rows.reconciler.lease_for.total_seconds() / 2:
                claimed.taken.append(row)
            else:
                marked |= await self._mark([row], claimed)
        return marked


def _why(rows: Rows, error: Exception) -> Exception:
    if keeps_state(error):
        return _kept_as_it_was(rows)
    return ConnectionEnded.by(error) if unanswered(error) else error


def _kept_as_it_was(rows: Rows) -> Exception:
    return OutcomeUndone(f"a trigger of table {rows.found.spec} keeps the row unchanged, so it could not be claimed")
