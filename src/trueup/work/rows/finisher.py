"""Writes what became of rows, many at a time.

Verdicts are gathered for a few milliseconds and written with one statement per kind of verdict; each row is judged alone by
its fence and its compare-and-set. A row that the database refuses (a constraint, a value that does not fit, a trigger) makes the
whole statement fail: then they are written in halves, down to that row, and for it the refusal counts as a failed attempt. So does
an outcome that does not stick: a trigger keeps the row as it was, or somebody else has changed it and it is still chosen.
A failure that cannot be written either is written without touching the user's row. A row that somebody has locked is tried
again, its lease renewed, for as long as a handler may run; nobody waits for it. While the database is away, what is to be
written is kept as long as the lease of its row is trusted, and dropped then: the next holder of the row does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any, Literal, TypeVar

from trueup import faults
from trueup.clock import elapsed
from trueup.durations import format_duration
from trueup.errors import ConfigError
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
    RowUndone,
    ServiceFailed,
)
from trueup.jobs.failure import MAX_MESSAGE, Failure, clean, describe, type_name
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
from trueup.reconcile.outcome import Delete, Outcome, To
from trueup.store.db.connect import is_away, may_pass
from trueup.store.fitted import RowStatements
from trueup.store.rows.rows import Done, Rows
from trueup.work.rows.held import Held, claims_apart
from trueup.work.rows.refusals import (
    MAX_REPEATS,
    OutcomeContested,
    OutcomeUndone,
    RowBusy,
    parts,
    to_repeat,
    unanswered,
)
from trueup.work.service import Service

MAX_AT_ONCE = 500
LONGER, FEW = 8, 10  # while at least so many more come each time, it gathers on, for up to so many times as long
UNHURRIED = 0.1  # seconds to gather what is not urgent
BUSY_PAUSE = 0.05  # seconds until a row that somebody has locked, or that is being renewed, is tried again
MAX_BUSY_PAUSE = 1.0
FULL_PAUSE = (
    1.0  # seconds until a row is tried again whose failure cannot be written either, because the disk is full, say
)

T = TypeVar("T")
Count = Literal["changed", "unchanged", "conflict", "undone", "retry", "quarantined", "lost"]


@dataclass(slots=True)
class Settling:
    held: Held
    verdict: Verdict
    duration: float = 0.0
    counts_as: Count | None = None  # known already, whatever the statement says
    uncertain: bool = False  # a statement with it was sent and no answer came
    decided: Verdict | None = None  # what was to be written before the database refused it
    touch: bool = True  # whether what the claim wrote to the user's row may be undone; when that is refused, it stays
    repeats: int = 0  # how often the server has asked for its statement to be repeated
    busy: int = 0
    busy_since: float | None = None  # somebody has had its row locked since then
    not_before: float = 0.0

    @property
    def row(self) -> ClaimedRow:
        return self.held.row


class RowFinisher(Service):
    name = "finisher"

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
        self._wary = False  # the database has refused rows of the last group: more of the kind may follow

    @property
    def pending(self) -> int:
        """How many outcomes are not in the database yet."""
        return sum(not isinstance(each.verdict, Written) for each in self._pending)

    @property
    def backlog(self) -> int:
        """The same without those that wait for somebody else: others need not wait for them."""
        now = elapsed()
        return sum(not isinstance(each.verdict, Written) and each.not_before <= now for each in self._pending)

    def in_hand(self) -> Iterable[Held]:
        """Those that are still to be written. Also called on the renewer's thread."""
        return [settling.held for settling in list(self._pending)]

    def put(self, settling: Settling) -> None:
        """It is written soon."""
        if isinstance(settling.verdict, Lost):
            self._lost(settling)
            return
        self._pending.append(settling)
        if len(self._pending) >= MAX_AT_ONCE or not isinstance(settling.verdict, Written):
            self._enough.set()
        self._wake.set()

    async def run_once(self) -> float:
        await self._gather()
        while batch := [each for each in self._pending if each.not_before <= elapsed()][:MAX_AT_ONCE]:
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
        if not self._pending or not self._gather_for or self._stop.is_set() or len(self._pending) >= MAX_AT_ONCE:
            return
        if self.pending or self._hurried:
            self._hurried = False
            for _ in range(LONGER):
                before = len(self._pending)
                await asyncio.sleep(self._gather_for)
                if not before + FEW <= len(self._pending) < MAX_AT_ONCE or self._hurried or self._stop.is_set():
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
        groups: dict[tuple[Any, ...], list[Settling]] = {}
        for settling, claim in zip(batch, claims_apart(each.row for each in batch), strict=True):
            row = settling.row
            if row.trust.left(self._rows.clock.elapsed()) > 0:
                # Those that have failed before go apart: one of them that is refused again does not make the others wait.
                groups.setdefault(
                    (row.holder, settling.touch, row.attempt > 1 or settling.repeats > 0, claim), []
                ).append(settling)
            else:
                self._forget([settling])
                self._lost(settling)
        for group in groups.values():
            await self._send(group)

    async def _send(self, group: list[Settling], *, fits: bool = False) -> None:
        """Write these, which have the same holder. What is not written stays pending, for later.

        `fits`: that the statements are for the table as it is was found out a moment ago.
        """
        if self._wary and len(group) > 1:
            await self._send_apart(group, fits=fits)
            return
        ready = self._ready(group)
        if not ready:
            return
        begun, made = elapsed(), self._rows.made
        rows, verdicts, touch = [each.row for each in ready], [each.verdict for each in ready], ready[0].touch
        done = await _answer(ready, self._rows.settle(rows[0].holder, rows, verdicts, touch=touch))
        if not isinstance(done, Exception):
            self._answered(ready, done)
        elif not (fits or to_repeat(done)) and await self._changed_since(made, ready):
            await self._send(ready)
        else:
            await self._refused(ready, done, elapsed() - begun)

    def _ready(self, group: list[Settling]) -> list[Settling]:
        """Those that can be written now; the others are being renewed."""
        ready = [each for each in group if each.held.begin_writing()]
        for settling in group:
            if not settling.held.writing:
                settling.not_before = elapsed() + BUSY_PAUSE
        return ready

    def _answered(self, group: list[Settling], done: dict[str, Done]) -> None:
        still_held = ("busy", "contested", "undone")
        self._forget([each for each in group if done.get(each.row.key) not in still_held])
        for settling in group:
            answer = done.get(settling.row.key)
            if answer in still_held:
                settling.held.writing = False
            match answer:
                case "changed":
                    self.written(settling)
                case "conflict":
                    self._conflict(settling)
                case "busy":
                    self._busy(settling)
                case "contested" | "undone":
                    self._not_kept(settling, answer)
                case None:
                    self._lost(settling, "database")

    # -- what the database does not want ------------------------------------------------------------------------------

    async def _refused(self, group: list[Settling], error: Exception, took: float) -> None:
        """One row that the database refuses must not hold up the others, nor be lost itself."""
        if to_repeat(error) and self._repeat(group):
            return
        if len(group) == 1:
            self._blame(group[0], error)
        elif took >= self._rows.search_for:  # whatever it waits for, more of it in one transaction would wait as long
            for part in parts(group, error, took):
                await self._send(part, fits=True)
        else:
            await self._send_apart(group, fits=True)

    async def _send_apart(self, group: list[Settling], *, fits: bool) -> None:
        """Write those that the database takes, and blame the others."""
        ready = self._ready(group)
        if not ready:
            return
        made = self._rows.made
        rows, verdicts, touch = [each.row for each in ready], [each.verdict for each in ready], ready[0].touch
        apart = await _answer(ready, self._rows.settle_apart(rows[0].holder, rows, verdicts, touch=touch))
        if isinstance(apart, Exception):  # about none of them alone: a job that follows, or it took too long
            self._wary = False
            if not fits and not to_repeat(apart) and await self._changed_since(made, ready):
                await self._send(ready)
                return
            for part in parts(ready, apart):
                await self._send(part, fits=True)
            return
        self._wary = bool(apart.refused)
        left = apart.refused.keys() | apart.untried
        self._answered([each for each in ready if each.row.key not in left], apart.done)
        refused = [each for each in ready if each.row.key in left]
        for settling in refused:
            settling.held.writing = False
        if apart.refused and not fits and await self._changed_since(made, refused):
            return
        for settling in refused:
            error = apart.refused.get(settling.row.key)
            if error is None:
                continue
            if may_pass(error):  # it may have been the server's trouble while it was this row's turn
                await self._send([settling], fits=True)
            else:
                await self._refused([settling], error, 0.0)

    def _blame(self, settling: Settling, error: Exception) -> None:
        """The database refuses this row: what is to be written about it instead."""
        if settling.decided is None:
            settling.decided, settling.verdict = settling.verdict, self.failure(settling.row, error)
            if isinstance(
                settling.decided, BackOff | SetAside
            ):  # it says what failed before; only its outcome is left out
                settling.verdict = _without_outcome(settling.decided)
        elif settling.touch and self._rows.marks_rows:
            settling.touch = False
        elif is_away(error) or may_pass(error):
            # Not even that: so the database refuses everything for the moment, and no row is to blame.
            settling.verdict, settling.decided, settling.touch, settling.repeats = settling.decided, None, True, 0
            settling.not_before = elapsed() + FULL_PAUSE
        else:
            self._forget([settling])
            self._lost(settling, "database")
            self.events.emit(ServiceFailed(self.name, type_name(error), describe(error)).because(error))

    async def _changed_since(self, made: RowStatements, group: list[Settling]) -> bool:
        """Whether the table has changed since these statements were made: no row is to blame, and they are to be sent anew."""
        try:
            return await self._rows.changed_since(made, settling=True)
        except ConfigError as unfit:  # nothing can be written to it; that is noted, and costs no attempt
            changing = [each for each in group if each.touch]
            for settling in changing:
                verdict, row = settling.verdict, settling.row
                if isinstance(verdict, Change | Remove):
                    delay = self._rows.reconciler.retry.delay(1)
                    verdict = BackOff(delay, Failure.of(unfit, row.attempt), spend=False)
                settling.verdict, settling.touch = _without_outcome(verdict), False
            return bool(changing)

    def _repeat(self, group: list[Settling]) -> bool:
        """Whether these are to be sent again as they are, in a moment."""
        if max(each.repeats for each in group) >= (MAX_REPEATS if len(group) == 1 else 1):
            return False
        for settling in group:
            settling.repeats += 1
            settling.not_before = elapsed() + BUSY_PAUSE
        return True

    def failure(self, row: ClaimedRow, error: Exception) -> Verdict:
        """What becomes of a row for which this is a failed attempt. Nothing more is written to it."""
        verdict = decide(error, row, self._rows.reconciler, self._random)
        if isinstance(verdict, Change | Remove):  # exhausted= may be what was refused
            verdict = SetAside("out of attempts: its outcome was refused", Failure.of(error, row.attempt))
        if isinstance(verdict, SetAside) and isinstance(error, OutcomeUndone | OutcomeContested):
            return replace(verdict, reason=clean(f"out of attempts: {error}", MAX_MESSAGE))
        return _without_outcome(verdict)

    def _busy(self, settling: Settling) -> None:
        """Somebody has the row locked: it is tried again, for as long as a handler may run."""
        now, timeout = elapsed(), self._rows.reconciler.timeout
        settling.busy_since = settling.busy_since or now
        settling.not_before = now + min(BUSY_PAUSE * 1.5**settling.busy, MAX_BUSY_PAUSE)
        settling.busy += 1
        if now - settling.busy_since >= timeout.total_seconds() and settling.touch:
            settling.touch = False
            said = f"somebody has had the row locked for {format_duration(timeout)}; its outcome was not written"
            failed = isinstance(settling.verdict, BackOff | SetAside)
            settling.verdict = (
                _without_outcome(settling.verdict) if failed else self.failure(settling.row, RowBusy(said))
            )

    def _not_kept(self, settling: Settling, how: Literal["contested", "undone"]) -> None:
        """An outcome that was not written although the row is still one for this reconciler: a failed attempt."""
        said, error = self.not_kept(settling.row, settling.verdict, how)
        self.events.emit(said)
        if isinstance(settling.verdict, BackOff):
            settling.verdict = _without_outcome(settling.verdict)
        else:
            settling.verdict = self.failure(settling.row, error)
            settling.counts_as = "undone" if how == "undone" else "conflict"
        settling.decided = settling.decided or settling.verdict

    def not_kept(
        self, row: ClaimedRow, verdict: Any, how: Literal["contested", "undone"]
    ) -> tuple[RowUndone | RowConflict, Exception]:
        """The event, and the error that it is for the row."""
        outcome, table = _outcome_shown(verdict), self._rows.found.spec
        if how == "undone":
            hint = f"a trigger of table {table} keeps the row as it is, so {outcome} was not written; see its BEFORE triggers"
            return RowUndone(row.reconciler, row.key, outcome), OutcomeUndone(hint)
        hint = (
            f"{outcome} was not written: the row was changed while its handler ran, and is still one to be handled; "
            f"if nobody else changes it, an AFTER trigger of table {table} does, at every write"
        )
        return RowConflict(row.reconciler, row.key, outcome), OutcomeContested(hint)

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
                event = RowRetried(name, row.key, row.attempt, most, ms, failure.type, failure.message)
                emit(event.because(failure.error, failure.frames))
            case SetAside(reason, failure):
                count = "quarantined"
                aside = RowQuarantined(name, row.key, row.attempt, reason, failure.type, failure.message)
                emit(aside.because(failure.error, failure.frames))
            case GiveBack():
                count = "unchanged"
                if settling.counts_as is None:
                    emit(RowReleased(name, row.key))
            case Lost():
                count = "lost"
        self._on_settled(settling, count if count == "quarantined" else settling.counts_as or count)

    def _conflict(self, settling: Settling) -> None:
        row = settling.row
        self.events.emit(RowConflict(row.reconciler, row.key, _outcome_shown(settling.verdict)))
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


async def _answer(group: Sequence[Settling], writing: Awaitable[T]) -> T | Exception:
    """What came of a statement with these: its answer, or why the server refuses it. Raises when no answer came."""
    try:
        return await writing
    except BaseException as error:
        for settling in group:
            settling.held.writing = False
            settling.uncertain = settling.uncertain or unanswered(error)
        if unanswered(error) or not isinstance(error, Exception):
            raise
        return error.with_traceback(None)


def _outcome_shown(verdict: Any) -> str:
    """The outcome of a verdict, or an outcome, as people read it."""
    outcome = getattr(verdict, "outcome", verdict)
    return shown(outcome) if isinstance(outcome, Outcome) else type(verdict).__name__


def _without_outcome(verdict: Verdict) -> Verdict:
    return replace(verdict, outcome=None) if isinstance(verdict, BackOff) else verdict


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
