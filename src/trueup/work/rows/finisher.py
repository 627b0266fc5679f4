"""Writes what became of rows, with one statement per kind of move; `work/writing.py` is the mechanism.

An outcome is pending → sent → written, or else one of these:

- refused: by a constraint, a trigger, or because a value does not fit. The whole statement fails then, and the server itself tries the
  rows of the batch in parts (`Rows.settle_apart`). For the culprit that is a failed attempt; a failure that cannot be written either
  is written without touching the user's row.
- undone or contested: a trigger kept the row as it was, or another transaction has changed it and it is still chosen. A failed attempt.
- busy: another transaction has locked the row, or what a trigger of it needs. It is tried again, its lease renewed, for as long as a
  handler may run; the others do not wait for it.
- kept waiting: another session has locked the table (it builds an index, say). No row can be written, so all outcomes are kept, and
  nothing more is claimed, as if the database were away.
- in conflict: the row is not what the claim saw. Nothing is written.
- lost: the lease is gone. Each row is judged alone by its fence, and the next holder of the row handles it.

The database is the authority. While it is away, an outcome is kept as long as the lease of its row is trusted, and dropped then.
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
from trueup.reconcile.decide import Lost, Move, Written
from trueup.store.db.connect import TIMED_OUT, is_locked_out, may_pass
from trueup.store.fitted import RowStatements
from trueup.store.rows.asks import Done
from trueup.store.rows.rows import Rows
from trueup.work.rows.ending import Ending, size_of
from trueup.work.rows.failures import BUSY_PAUSE, Failures
from trueup.work.rows.held import Held, claims_apart
from trueup.work.rows.refusals import MAX_REPEATS
from trueup.work.rows.reports import Reports
from trueup.work.rows.sweeps import Sweeps
from trueup.work.writing import SLOW, Writer, to_repeat

LONGER, FEW = 8, 10  # while at least FEW more come each time, it gathers on, for up to LONGER times as long
UNHURRIED = 0.1  # seconds to gather what is not urgent
WARY_FOR = 1_000  # rows after a refused one that are written apart at once: together they would often be refused, too
SUSPECT_PAUSE = 0.5  # seconds until rows that were refused are tried again, together with others like them


class RowFinisher(Writer[Ending, dict[str, Done]]):
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
        self._enough = asyncio.Event()  # to be written without gathering more
        self._hurried = False
        # How many rows, by whether they are suspects, are written apart at once: more like those refused may follow.
        self._wary = {False: 0, True: 0}
        self._unwritten = 0  # how many of those pending are not in the database yet
        self._put_off: list[Ending] = []  # those of them that a statement has left for later
        self._made = rows.made  # the statements that were sent last
        self._fits: RowStatements | None = None  # statements that were found to be for the table as it is

    @property
    def pending(self) -> int:
        """How many outcomes are not in the database yet."""
        return self._unwritten

    @property
    def backlog(self) -> int:
        """The same without those that wait for a lock: the others need not wait for them."""
        now = elapsed()
        return self._unwritten - sum(each.not_before > now for each in self._put_off)

    def in_hand(self) -> Iterable[Held]:
        """Those that are still to be written. Also called on the renewer's thread."""
        return [ending.held for ending in list(self._pending)]

    def put(self, ending: Ending) -> None:
        """It is written soon."""
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
        """Nothing more will come: write what there is."""
        self._hurried = True
        self._enough.set()
        self._wake.set()

    async def _write(self, batch: list[Ending]) -> None:
        groups: dict[tuple[Any, ...], list[Ending]] = {}  # by when their turn is, and what they have in common
        for ending, claim in zip(batch, claims_apart(each.row for each in batch), strict=True):
            row = ending.row
            if row.trust.left(self._rows.clock.elapsed()) > 0:
                # Suspects go apart: one of them that is refused again does not make the others wait.
                # A slow one is written alone, and after the others.
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

    def _forget(self, settled: Iterable[Ending]) -> None:
        super()._forget(settled)
        self._unwritten = sum(not isinstance(each.move, Written) for each in self._pending)

    def _ready(self, group: list[Ending]) -> list[Ending]:
        """The others are being renewed."""
        ready = [each for each in group if each.held.begin_writing()]
        for ending in group:
            if ending.held.turn != "write":
                ending.not_before = elapsed() + BUSY_PAUSE
        return ready

    async def _send(self, group: list[Ending]) -> None:
        if len(group) > 1 and (self._wary[self.failures.expected(group[0])] > 0 or any(each.repeats for each in group)):
            await self._send_apart(group)
        else:
            await super()._send(group)

    async def _statement(self, group: list[Ending]) -> dict[str, Done]:
        return await self._rows.settle(*self._about(group), touch=group[0].touch, briefly=group[0].speed == "unknown")

    async def _reach(self) -> None:
        await self._rows.settling.fetch(b"select 1")

    def _about(self, group: list[Ending]) -> tuple[UUID, list[ClaimedRow], list[Move]]:
        self._made = self._rows.made
        return group[0].row.holder, [each.row for each in group], [each.move for each in group]

    def _answered(self, group: list[Ending], answer: dict[str, Done]) -> None:
        still_held = ("busy", "contested", "undone")
        self._forget(each for each in group if answer.get(each.row.key) not in still_held)
        for ending in group:
            done = answer.get(ending.row.key)
            if done in still_held:
                ending.held.end_turn("write")
            match done:
                case "changed":
                    self.reports.written(ending)
                case "conflict":
                    self.reports.conflict(ending)
                case "busy":
                    self.failures.busy(ending)
                case "contested" | "undone":
                    self.failures.not_kept(ending, done)
                case None:
                    self.reports.lost(ending, "database")

    # -- what the database does not want ------------------------------------------------------------------------------

    async def _refused(self, group: list[Ending], error: Exception, took: float) -> None:
        await self._wait_for_table(error)
        if not to_repeat(error) and await self._has_changed(group):
            await self._send(group)
        elif len(group) == 1 and is_locked_out(error) and took >= SLOW and group[0].touch:
            self.failures.busy(group[0], took)
        elif group[0].speed == "unknown" and isinstance(error, TIMED_OUT):
            group[0].speed, group[0].not_before = "slow", elapsed() + UNHURRIED
        else:
            await super()._refused(group, error, took)

    async def _wait_for_table(self, error: Exception) -> None:
        """Raises the error if it is about a lock on the whole table: no row is to blame, and everything is sent again."""
        if is_locked_out(error) and await self._rows.is_locked():
            raise error

    async def _divide(self, group: list[Ending], error: Exception, took: float) -> None:
        if took >= self._rows.search_for:  # whatever it waits for, more of it in one transaction would wait as long
            if isinstance(error, TIMED_OUT):
                for ending in group:
                    ending.speed = "unknown"
            await super()._divide(group, error, took)
        else:
            await self._send_apart(group)

    async def _send_apart(self, group: list[Ending]) -> None:
        """Write those that the database takes, and blame the others."""
        ready = self._ready(group)
        if not ready:
            return
        apart = await self._answer(ready, self._rows.settle_apart(*self._about(ready), touch=ready[0].touch))
        if isinstance(apart, Exception):  # about none of them alone: a job that follows, or it took too long
            await self._wait_for_table(apart)
            self._wary[self.failures.expected(ready[0])] = 0
            if not to_repeat(apart) and await self._has_changed(ready):
                await self._send(ready)
            else:
                await self._divide(ready, apart, max(SLOW, self._rows.search_for))
            return
        suspect = self.failures.expected(ready[0])
        self._wary[suspect] = WARY_FOR if apart.refused else self._wary[suspect] - len(ready)
        left = apart.refused.keys() | apart.untried
        self._answered([each for each in ready if each.row.key not in left], apart.done)
        refused = [each for each in ready if each.row.key in left]
        for ending in refused:
            ending.held.end_turn("write")
        if apart.refused and apart.sign != self._made.found.sign and await self._has_changed(refused):
            return
        for ending in refused:
            error = apart.refused.get(ending.row.key)
            if error is None:
                continue
            # It may have been the server's trouble while it was this row's turn: once more, or as often as the server asks for it.
            if ending.repeats < (self.max_repeats if to_repeat(error) else may_pass(error)):
                ending.repeats += 1
                ending.not_before = _together(SUSPECT_PAUSE)
            else:
                self._blame(ending, error)
                ending.not_before = max(ending.not_before, _together(UNHURRIED))

    def _blame(self, one: Ending, error: Exception) -> None:
        if not self.failures.refused(one, error):
            self._forget([one])
            self.reports.lost(one, "database")
            self.events.emit(ServiceFailed(self.name, type_name(error), describe(error)).because(error))

    async def _has_changed(self, group: list[Ending]) -> bool:
        """Whether the table has changed since the statements were made: no row is to blame, and they are to be sent anew."""
        if self._made is self._fits:
            return False
        try:
            changed = await self._rows.changed_since(self._made, self._rows.settling)
        except ConfigError as unfit:  # nothing can be written to it; that is noted, and costs no attempt
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
