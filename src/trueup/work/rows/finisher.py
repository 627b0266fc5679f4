"""Writes the outcomes of rows, with one statement per kind of move; `work/writing.py` is the mechanism.

An outcome is pending → sent → written, or else one of these:

- refused: by a constraint or a trigger, or because a value does not fit. The whole statement fails, and the server then tries the rows
  of the batch in parts (`Rows.settle_apart`). The culprit gets a failed attempt. If PostgreSQL refuses that, too, the attempt is
  recorded without touching the user's row.
- undone or contested: a trigger kept the row as it was, or another transaction has changed it and it still matches. A failed attempt.
- busy: another transaction has locked the row, or something that a trigger of the row needs. The outcome is sent again, and the lease
  is renewed, for as long as a handler may run; other outcomes do not wait for it.
- kept waiting: another session has locked the table (to build an index, for example). No row can be written, so all outcomes are kept
  and no more rows are claimed, as if the database were away.
- in conflict: the row has changed since the claim. Nothing is written.
- lost: the lease is gone. Each row is judged alone by its fence, and the next holder of the row handles it.

The database is the authority. While it is away, an outcome is kept as long as the lease of its row is trusted, and is then dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from trueup.clock import elapsed
from trueup.errors import ConfigError
from trueup.events import Events, ServiceFailed
from trueup.jobs.failure import describe, type_name
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Change, Lost, Move, Remove, Written
from trueup.store.db.connect import TIMED_OUT, is_locked_out, may_pass
from trueup.store.fitted import OF_TABLES, RowStatements
from trueup.store.rows.asks import Done
from trueup.store.rows.kept import keeps_state
from trueup.store.rows.rows import Rows
from trueup.work.rows.failures import BUSY_PAUSE, Failures
from trueup.work.rows.held import RowInHand, claims_apart
from trueup.work.rows.refusals import MAX_REPEATS
from trueup.work.rows.reports import Reports, RowEnding, size_of
from trueup.work.rows.sweeps import Sweeps
from trueup.work.writing import SLOW, Writer, to_repeat

LONGER, FEW = 8, 10  # while at least FEW more come each time, it gathers on, for up to LONGER times as long
UNHURRIED = 0.1  # seconds to gather what is not urgent
WARY_FOR = 1_000  # rows after a refused one that are written apart at once, because one statement for all of them would often be refused, too
SUSPECT_PAUSE = 0.5  # seconds until refused outcomes are sent again, together with others like them


class RowFinisher(Writer[RowEnding, dict[str, Done]]):
    max_at_once = 500
    max_repeats = MAX_REPEATS
    crash_points = ("before_row_settle", "after_row_settle")

    def __init__(
        self,
        rows: Rows,
        events: Events,
        random: Random,
        sweeps: Sweeps,
        *,
        gather_for: timedelta,
    ) -> None:
        super().__init__(events, gather_for)
        self._rows = rows
        self.reports = Reports(rows, events, sweeps)
        self.failures = Failures(rows, random, self.reports)
        self._enough = asyncio.Event()  # set when pending outcomes are to be written without gathering more
        self._hurried = False
        # How many of the next rows are written apart at once, for suspects and for others: after a refusal more may follow.
        self._wary = {False: 0, True: 0}
        self._unwritten = 0  # how many pending outcomes are not committed yet
        self._put_off: list[RowEnding] = []  # outcomes that a statement has left for later
        self._made = rows.made  # the statements that were sent last
        self._fits: RowStatements | None = None  # statements that are known to fit the table

    @property
    def pending(self) -> int:
        """How many outcomes are not committed yet."""
        return self._unwritten

    @property
    def backlog(self) -> int:
        """The same without outcomes that wait for a lock, so that claims do not wait for them."""
        now = elapsed()
        return self._unwritten - sum(each.not_before > now for each in self._put_off)

    def is_writing(self, rows: Iterable[ClaimedRow]) -> bool:
        """Whether an outcome of these rows is not committed yet."""
        claims = {(row.key, row.term) for row in rows}
        return any((each.row.key, each.row.term) in claims for each in self._pending)

    def in_hand(self) -> Iterable[RowInHand]:
        """The rows whose outcomes are still to be written. Also called on the renewer's thread."""
        return [ending.held for ending in list(self._pending)]

    def put(self, ending: RowEnding) -> None:
        """Queue an outcome; it is written soon."""
        if isinstance(ending.move, Lost):
            self.reports.lost(ending)
            return
        ending.size = size_of(ending.move)
        self._add(ending)
        self._unwritten += not isinstance(ending.move, Written)
        if len(self._pending) >= self.max_at_once or not isinstance(ending.move, Written):
            self._enough.set()

    @property
    def _urgent(self) -> bool:
        return self._hurried or self.pending > 0

    async def _wait_for_more(self) -> None:
        """Longer when the outcomes are committed already and only what is known is left to settle."""
        self._enough.clear()
        if self._urgent:
            self._hurried = False
            for _ in range(LONGER):
                before = len(self._pending)
                await asyncio.sleep(self._gather_for)
                if not before + FEW <= len(self._pending) < self.max_at_once or self._hurried or self._stop.is_set():
                    return
            return
        try:
            async with asyncio.timeout(UNHURRIED):
                await self._enough.wait()
        except TimeoutError:
            return

    def hurry(self) -> None:
        """No more outcomes will come: write the pending ones now."""
        self._hurried = True
        self._enough.set()
        self._wake.set()

    async def _write(self, batch: list[RowEnding]) -> None:
        groups: dict[tuple[Any, ...], list[RowEnding]] = {}  # by when their turn is, and what they have in common
        for ending, claim in zip(batch, claims_apart(each.row for each in batch), strict=True):
            row = ending.row
            if row.trust.left(self._rows.clock.elapsed()) > 0:
                # Suspects are sent apart: if one is refused again, the others do not wait for it.
                # A slow outcome is sent alone, after the others.
                slow = ending.speed == "slow"
                if slow and any(key[0] for key in groups):
                    ending.not_before = elapsed() + UNHURRIED
                    continue
                alike = slow, ending.company, row.holder, ending.touch, self.failures.expected(ending), claim
                groups.setdefault(alike, []).append(ending)
            else:
                self._forget([ending])
                self.reports.lost(ending)
        try:
            for _, group in sorted(groups.items(), key=lambda each: each[0][:2]):
                self._fits = None
                await self._send(group)
        finally:
            self._put_off = [each for each in self._pending if each.not_before and not isinstance(each.move, Written)]

    def _forget(self, settled: Iterable[RowEnding]) -> None:
        super()._forget(settled)
        self._unwritten = sum(not isinstance(each.move, Written) for each in self._pending)

    def _ready(self, group: list[RowEnding]) -> list[RowEnding]:
        """The outcomes that may be written now. The rows of the others are being renewed."""
        ready = [each for each in group if each.held.begin_writing()]
        for ending in group:
            if ending.held.turn != "write":
                ending.not_before = elapsed() + BUSY_PAUSE
        return ready

    async def _send(self, group: list[RowEnding]) -> None:
        if len(group) > 1 and (self._wary[self.failures.expected(group[0])] > 0 or any(each.repeats for each in group)):
            await self._send_apart(group)
        else:
            await super()._send(group)

    async def _statement(self, group: list[RowEnding]) -> dict[str, Done]:
        return await self._rows.settle(*self._about(group), touch=group[0].touch, briefly=group[0].speed == "unknown")

    async def _reach(self) -> None:
        await self._rows.settling.fetch(b"select 1")

    def _about(self, group: list[RowEnding]) -> tuple[UUID, list[ClaimedRow], list[Move]]:
        self._made = self._rows.made
        return group[0].row.holder, [each.row for each in group], [each.move for each in group]

    def _answered(self, group: list[RowEnding], answer: dict[str, Done]) -> None:
        still_held = ("busy", "contested", "undone")
        hand, wrote = self.failures.hand, self._wrote(group, answer)
        self._forget(each for each in group if answer.get(each.row.key) not in still_held)
        for ending in group:
            done = answer.get(ending.row.key)
            if done in still_held:
                ending.held.end_turn("write")
            match done:
                case "changed":
                    if hand is not None:
                        hand.outcome_written(ending.held)
                    self.reports.written(ending)
                case "conflict":
                    self.reports.conflict(ending)
                case "busy":
                    self.failures.busy(ending)
                case "contested" | "undone":
                    if hand is not None and wrote:
                        hand.refused_beside_others(ending.held)
                    self.failures.not_kept(ending, done)
                case None:
                    self.reports.lost(ending, "database")

    @staticmethod
    def _wrote(group: list[RowEnding], answer: dict[str, Done]) -> bool:
        """Whether one of these outcomes was written to its row."""
        return any(isinstance(each.move, Change | Remove) and answer.get(each.row.key) == "changed" for each in group)

    # -- refused outcomes ---------------------------------------------------------------------------------------------

    async def _refused(self, group: list[RowEnding], error: Exception, took: float) -> None:
        await self._wait_for_table(error)
        if not to_repeat(error) and await self._has_changed(group, error):
            await self._send(group)
        elif len(group) == 1 and is_locked_out(error) and took >= SLOW and group[0].touch:
            self.failures.busy(group[0], took)
        elif group[0].speed == "unknown" and isinstance(error, TIMED_OUT):
            group[0].speed, group[0].not_before = "slow", elapsed() + UNHURRIED
        else:
            await super()._refused(group, error, took)

    async def _wait_for_table(self, error: Exception) -> None:
        """Raises the error if another session has locked the whole table: no row is to blame, and everything is sent again."""
        if is_locked_out(error) and await self._rows.is_locked():
            raise error

    async def _divide(self, group: list[RowEnding], error: Exception, took: float) -> None:
        if took >= self._rows.search_for:  # several such waits in one transaction would take even longer
            await self._send_singly(group)
        else:
            await self._send_apart(group)

    async def _send_singly(self, group: list[RowEnding]) -> None:
        """After a refusal that took long: a slow row would slow down each part that it is in, whichever row was refused."""
        for ending in group:
            ending.speed = "unknown"
        for ending in group:
            await self._send([ending])

    async def _send_apart(self, group: list[RowEnding]) -> None:
        """Have the server write these rows in parts. Rows that it refuses get a failed attempt."""
        ready = self._ready(group)
        if not ready:
            return
        begun = elapsed()
        apart = await self._answer(ready, self._rows.settle_apart(*self._about(ready), touch=ready[0].touch))
        if isinstance(apart, Exception):
            await self._search(ready, apart, took=elapsed() - begun)
            return
        suspect = self.failures.expected(ready[0])
        self._wary[suspect] = WARY_FOR if apart.refused else self._wary[suspect] - len(ready)
        left = apart.refused.keys() | apart.untried
        wrote = self._wrote(ready, apart.done)
        self._answered([each for each in ready if each.row.key not in left], apart.done)
        refused = [each for each in ready if each.row.key in left]
        for ending in refused:
            ending.held.end_turn("write")
        of_table = next((error for error in apart.refused.values() if isinstance(error, OF_TABLES)), None)
        altered = apart.refused and apart.sign != self._made.found.sign
        if (altered or of_table) and await self._has_changed(refused, of_table):
            return
        for ending in refused:
            if (error := apart.refused.get(ending.row.key)) is not None:
                if wrote and self.failures.hand is not None:
                    self.failures.hand.refused_beside_others(ending.held)
                self._refuse(ending, error)

    async def _search(self, ready: list[RowEnding], error: Exception, *, took: float) -> None:
        """The error is about none of these rows alone: a job that follows from one was refused, or the statement took too long."""
        await self._wait_for_table(error)
        self._wary[self.failures.expected(ready[0])] = 0
        if not to_repeat(error) and await self._has_changed(ready, error):
            await self._send(ready)
        elif isinstance(error, TIMED_OUT) or took >= self._rows.search_for:
            await self._send_singly(ready)
        else:
            await super()._divide(ready, error, SLOW)

    def _refuse(self, ending: RowEnding, error: Exception) -> None:
        """The server may have had a problem just then, so the outcome is sent once more, or as often as the server asks to repeat it."""
        if ending.repeats < (self.max_repeats if to_repeat(error) else may_pass(error)):
            ending.repeats += 1
            ending.not_before = _together(SUSPECT_PAUSE)
        else:
            self._blame(ending, error)
            ending.not_before = max(ending.not_before, _together(UNHURRIED))

    def _blame(self, one: RowEnding, error: Exception) -> None:
        if keeps_state(error):
            self.failures.not_kept(one, "undone")
        elif not self.failures.refused(one, error):
            self._forget([one])
            self.reports.lost(one, "database")
            self.events.emit(ServiceFailed(self.name, type_name(error), describe(error)).because(error))

    async def _has_changed(self, group: list[RowEnding], refusal: BaseException | None) -> bool:
        """Whether the table has changed since the statements were composed: no row is to blame, and new statements are sent."""
        if self._made is self._fits:
            return False
        try:
            changed = await self._rows.changed_since(self._made, self._rows.settling, refusal=refusal)
        except ConfigError as unfit:  # the table cannot be written to; that is recorded and spends no attempt
            changing = [each for each in group if each.touch]
            for ending in changing:
                self.failures.unfit(ending, unfit)
            changed = bool(changing)
        if not changed:
            self._fits = self._made
        return changed


def _together(pause: float) -> float:
    """About this many seconds from now, at a moment that others choose as well: a statement for one row costs as much as for many."""
    return (elapsed() / pause + 1.5) // 1 * pause
