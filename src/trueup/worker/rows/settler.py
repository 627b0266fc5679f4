"""Writes what became of rows, many at a time.

Verdicts are gathered for a few milliseconds and written with one statement per kind of verdict; each row is judged alone by
its fence and its compare-and-set. A row that the database refuses (a constraint, a value that does not fit, a trigger that
takes too long) makes the whole statement fail: then they are written one by one, and for that row it counts as a failure of its
handler. A row that somebody has locked is tried again while its lease lasts; nobody waits for it. While the database is away,
what is to be written is kept as long as the lease of its row is trusted, and dropped then: whoever has the row next will do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any, Literal

from psycopg import errors

from trueup import faults
from trueup.clock import elapsed
from trueup.events import (
    Events,
    RowChanged,
    RowClaimLost,
    RowConflict,
    RowProposed,
    RowQuarantined,
    RowReleased,
    RowRetried,
    RowUnchanged,
)
from trueup.jobs.failure import Failure
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import (
    BackOff,
    Change,
    GiveBack,
    Lost,
    Remove,
    Rest,
    SetAside,
    Verdict,
    Written,
    decide,
    shown,
)
from trueup.reconcile.outcome import Delete, To
from trueup.store.connect import RETRYABLE
from trueup.store.rows import Rows
from trueup.worker.rows.held import Held
from trueup.worker.service import Service

MOST_AT_ONCE = 500
LONGER, FEW = 8, 10  # while at least so many more come each time, it gathers on, for up to so many times as long
UNHURRIED = 0.1  # seconds to gather what is not urgent
BUSY_PAUSE = 0.05  # seconds until a row that somebody has locked is tried again

Count = Literal["changed", "unchanged", "conflict", "retry", "quarantined", "lost"]


@dataclass(slots=True)
class Settling:
    held: Held
    verdict: Verdict
    duration: float = 0.0
    counts_as: Count | None = None  # known already, whatever the statement says
    uncertain: bool = False  # a statement with it was sent and no answer came
    refused: bool = False  # the database would not have its outcome
    not_before: float = 0.0

    @property
    def row(self) -> ClaimedRow:
        return self.held.row


class Settler(Service):
    name = "settler"

    def __init__(
        self,
        rows: Rows,
        events: Events,
        random: Random,
        *,
        gather_for: timedelta,
        on_settled: Callable[[Settling, Count], None],
    ) -> None:
        super().__init__(events)
        self._rows = rows
        self._random = random
        self._gather_for = gather_for.total_seconds()
        self._on_settled = on_settled
        self._pending: list[Settling] = []
        self._enough = asyncio.Event()  # to be written without gathering more
        self._hurried = False

    @property
    def pending(self) -> int:
        """How many outcomes are not in the database yet."""
        return sum(not isinstance(each.verdict, Written) for each in self._pending)

    def in_hand(self) -> Iterable[Held]:
        """Those that are still to be written. Also called on the keeper's thread."""
        return [settling.held for settling in list(self._pending)]

    def put(self, settling: Settling) -> None:
        """It is written soon."""
        if isinstance(settling.verdict, Lost):
            self._lost(settling)
            return
        self._pending.append(settling)
        if len(self._pending) >= MOST_AT_ONCE or not isinstance(settling.verdict, Written):
            self._enough.set()
        self._wake.set()

    async def run_once(self) -> float:
        await self._gather()
        while batch := [each for each in self._pending if each.not_before <= elapsed()][:MOST_AT_ONCE]:
            if faults.ARMED:
                faults.hit("before_row_settle")
            await self._settle(batch)
            if faults.ARMED:
                faults.hit("after_row_settle")
            if not self.pending and not self._hurried:
                break  # what has come meanwhile is not urgent
        return 0.0 if self._pending and not self.pending else BUSY_PAUSE if self._pending else 60.0

    async def _gather(self) -> None:
        """A moment for more to come; longer when the outcomes are committed already and only what is known is left to settle."""
        self._enough.clear()
        if not self._pending or not self._gather_for or self._stop.is_set() or len(self._pending) >= MOST_AT_ONCE:
            return
        if self.pending or self._hurried:
            self._hurried = False
            for _ in range(LONGER):
                before = len(self._pending)
                await asyncio.sleep(self._gather_for)
                if not before + FEW <= len(self._pending) < MOST_AT_ONCE or self._hurried or self._stop.is_set():
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

    async def _settle(self, batch: list[Settling]) -> None:
        """Write these and say what became of each. Raises what is worth repeating, with all of it still pending."""
        ours = []
        for settling in batch:
            if settling.row.trust.left(self._rows.clock.elapsed()) > 0:
                ours.append(settling)
            else:
                self._forget([settling])
                self._lost(settling)
        for holder in {settling.row.holder for settling in ours}:
            await self._send(holder, [settling for settling in ours if settling.row.holder == holder])

    async def _send(self, holder: Any, group: list[Settling]) -> None:
        for settling in group:
            settling.held.keep = (
                False  # once it is written there is no lease to renew; and if not, it is not kept for ever
            )
        try:
            done = await self._rows.settle(holder, [each.row for each in group], [each.verdict for each in group])
        except errors.QueryCanceled as error:  # nothing was written, and sent again it would take as long again
            await self._one_by_one(holder, group, error)
            return
        except RETRYABLE:
            for settling in group:
                settling.uncertain = True
            raise
        except Exception as error:  # of the database, or of a value that is like nothing it knows
            await self._one_by_one(holder, group, error)
            return
        busy = [each for each in group if done.get(each.row.key) == "busy"]
        for settling in busy:
            settling.not_before = elapsed() + BUSY_PAUSE
        self._forget([each for each in group if done.get(each.row.key) != "busy"])
        for settling in group:
            match done.get(settling.row.key):
                case "changed":
                    self.written(settling)
                case "conflict":
                    self._conflict(settling)
                case None:
                    self._lost(settling, "database")

    async def _one_by_one(self, holder: Any, group: list[Settling], error: Exception) -> None:
        """One row that the database refuses must not hold up the others, nor be lost itself."""
        if len(group) > 1:
            for settling in group:
                await self._send(holder, [settling])
            return
        (settling,) = group
        if settling.refused:  # not even its failure can be written
            self._forget(group)
            self._lost(settling, "database")
            raise error
        settling.refused = True
        settling.verdict = self._as_failure(settling, error)
        await self._send(holder, group)

    def _as_failure(self, settling: Settling, error: Exception) -> Verdict:
        verdict = decide(error, settling.row, self._rows.reconciler, self._random)
        if isinstance(verdict, Change | Remove):  # exhausted= may be what was refused
            return SetAside("out of attempts: its outcome was refused", Failure.of(error, settling.row.attempt))
        return replace(verdict, outcome=None) if isinstance(verdict, BackOff) else verdict  # failed= may be, too

    def _forget(self, settled: list[Settling]) -> None:
        gone = {id(each) for each in settled}
        self._pending = [each for each in self._pending if id(each) not in gone]

    # -- what happened ------------------------------------------------------------------------------------------------

    def written(self, settling: Settling) -> None:
        """Tell of it, and count it."""
        row, verdict = settling.row, settling.verdict
        name, emit, wants = row.reconciler, self.events.emit, self.events.wants
        count: Count
        match verdict:
            case Change() | Remove() | Written():
                count = "changed"
                if wants(RowChanged):
                    emit(changed_event(settling))
            case Rest(delay, _, proposed):
                count = "unchanged"
                if proposed is not None:
                    emit(RowProposed(name, row.key, proposed))
                elif wants(RowUnchanged):
                    emit(RowUnchanged(name, row.key, delay.total_seconds() * 1000))
            case BackOff(delay, failure):
                count = "retry"
                most = self._rows.reconciler.retry.max_attempts
                ms = delay.total_seconds() * 1000
                emit(RowRetried(name, row.key, row.attempt, most, ms, failure.type, failure.message))
            case SetAside(reason, failure):
                count = "quarantined"
                emit(RowQuarantined(name, row.key, row.attempt, reason, failure.type, failure.message))
            case GiveBack():
                count = "unchanged"
                if settling.counts_as is None:
                    emit(RowReleased(name, row.key))
            case Lost():
                count = "lost"
        self._on_settled(settling, settling.counts_as or count)

    def _conflict(self, settling: Settling) -> None:
        outcome = getattr(settling.verdict, "outcome", None)
        outcome_shown = type(settling.verdict).__name__ if outcome is None else shown(outcome)
        self.events.emit(RowConflict(settling.row.reconciler, settling.row.key, outcome_shown))
        self._on_settled(settling, "conflict")

    def _lost(self, settling: Settling, refused_by: str = "local") -> None:
        row = settling.row
        if isinstance(settling.verdict, Written):  # only what is known about it was left to settle, and somebody has
            self.written(settling)
            return
        if settling.counts_as is None:
            by = "unknown" if settling.uncertain else refused_by
            self.events.emit(RowClaimLost(row.reconciler, row.key, row.term, by))
        self._on_settled(settling, settling.counts_as or "lost")


def changed_event(settling: Settling) -> RowChanged:
    row = settling.row
    outcome = settling.verdict.outcome if isinstance(settling.verdict, Change | Remove | Written) else None
    state_to = outcome.state if isinstance(outcome, To) else None if isinstance(outcome, Delete) else row.state
    return RowChanged(
        row.reconciler,
        row.key,
        type(outcome).__name__,
        row.state,
        state_to,
        row.attempt,
        row.lateness.total_seconds() * 1000,
        round(settling.duration * 1000, 3),
    )
