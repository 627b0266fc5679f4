"""Writes down how jobs ended, with one statement per kind of move; `work/writing.py` is the mechanism.

Each row is judged alone by its fence, so one lost claim does not touch its neighbours. Nothing is written once the lease is no
longer trusted. After a lost reply the statement is sent again, and a row that then does not come back is looked up by its term
before it counts as lost.

When PostgreSQL refuses the outcome of a job, its texts are left out. If it still refuses (another session has locked the row, for
example), the outcome stays pending and is retried with growing pauses, while everything else goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from trueup.clock import elapsed
from trueup.events import (
    Event,
    Events,
    JobBuried,
    JobClaimLost,
    JobCompleted,
    JobDeferred,
    JobDropped,
    JobFinishRefused,
    JobReleased,
    JobResultDropped,
    JobRetried,
    JobSnoozed,
)
from trueup.jobs.decide import Buried, Bury, Complete, Defer, Drop, Move, NoMove, Release, RetryAfter, SnoozeFor
from trueup.jobs.exhausted import Exhausting
from trueup.jobs.failure import Failure, describe
from trueup.jobs.job import ClaimedJob
from trueup.jobs.states import JobState
from trueup.store.db.connect import is_away, may_pass
from trueup.store.jobs import Jobs
from trueup.work.jobs.hand import RunningJob
from trueup.work.jobs.hints import Hints
from trueup.work.registration import Registrations
from trueup.work.writing import Pending, Writer

FIRST_PAUSE, MAX_PAUSE = 0.25, 30.0  # seconds until an outcome that was refused is tried again
WRITTEN_ALREADY = (NoMove, Buried)
DUE_AGAIN, COMPLETED = (RetryAfter, SnoozeFor, Defer), (Complete, NoMove)
REFUSALS_IN_A_ROW = 3  # with nothing written in between, it is the server that refuses, not a row


@dataclass(slots=True, eq=False)
class JobEnding(Pending):
    job: ClaimedJob
    move: Move
    duration: float = 0.0
    refusals: int = 0  # alone, with nothing left to leave out


class Finisher(Writer[JobEnding, set[int]]):
    max_at_once = 1_000
    max_repeats = 1
    crash_points = ("before_finish", "after_finish")

    def __init__(
        self,
        jobs: Jobs,
        events: Events,
        registrations: Registrations,
        hints: Hints,
        *,
        gather_for: timedelta,
    ) -> None:
        super().__init__(events, gather_for)
        self._jobs = jobs
        self._registrations = registrations
        self._hints = hints
        self._refused_in_a_row = 0
        self._refusals: dict[int, tuple[str, str]] = {}  # to be noted: move and error
        self._flushed = asyncio.Event()
        self._flushed.set()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def knows(self) -> set[tuple[int, int]]:
        """(id, term) of every job whose outcome is not written yet."""
        return {(ended.job.id, ended.job.term) for ended in self._pending}

    def put(self, run: RunningJob, move: Move, *, uncertain: bool = False) -> None:
        """Queue the outcome of a run; it is written soon."""
        if isinstance(move, NoMove) and move.lost:
            self.lost(run.job)
            return
        ended = JobEnding(run.job, move, elapsed() - run.started, uncertain=uncertain, size=_size(move))
        if isinstance(move, WRITTEN_ALREADY):
            self._tell([ended])
        else:
            self._add(ended)

    def put_unstarted(self, jobs: Iterable[ClaimedJob], move: Move | None = None) -> None:
        """Jobs in hand that will not be started here: released, unless another move is given."""
        for job in jobs:
            self._add(JobEnding(job, move or Release(job.lane, job.key)))

    def lost(self, job: ClaimedJob, refused_by: str = "local") -> None:
        self.events.emit(JobClaimLost(job.id, job.kind, job.term, refused_by))

    async def flushed(self) -> None:
        """Returns when every outcome queued so far is written or refused."""
        await self._flushed.wait()

    def _add(self, one: JobEnding) -> None:
        super()._add(one)
        self._flushed.clear()

    async def run_once(self) -> float:
        try:
            pause = await super().run_once()
        finally:
            await self._note_refusals()
        if not self._pending:
            self._flushed.set()
        return pause

    async def _note_refusals(self) -> None:
        refusals, self._refusals = self._refusals, {}
        for job_id, (move, error) in refusals.items():
            await self._jobs.refused(job_id, move, error)

    async def _write(self, batch: list[JobEnding]) -> None:
        groups: dict[tuple[tuple[int, int], type[Move], bool], list[JobEnding]] = {}
        for ended in batch:
            # Outcomes that were refused before are sent apart: if one is refused again, the others do not wait for it.
            key = ended.company, type(ended.move), ended.repeats + ended.refusals > 0
            groups.setdefault(key, []).append(ended)
        for _, group in sorted(groups.items(), key=lambda each: each[0][0]):
            await self._send(group)
        self._hints.room()

    def _ready(self, group: list[JobEnding]) -> list[JobEnding]:
        """The outcomes that may be written. The others are lost: their jobs were claimed under an earlier registration, or this one is
        no longer trusted."""
        registration = self._registrations.current
        ready = [ended for ended in group if registration.covers(ended.job)] if registration.trusted else []
        if len(ready) < len(group):
            lost = [ended for ended in group if ended not in ready]
            for ended in lost:
                self.lost(ended.job)
            self._forget(lost)
        return ready

    async def _reach(self) -> None:
        await self._jobs.reach()

    async def _statement(self, group: list[JobEnding]) -> set[int]:
        """Send a statement for outcomes of one kind. Returns the ids of the jobs that were written."""
        holder = self._registrations.current.holder
        written = await write(self._jobs, holder, [ended.job for ended in group], [ended.move for ended in group])
        unsure = [ended for ended in group if ended.uncertain and ended.job.id not in written]
        if unsure:
            for ended in group:
                ended.uncertain = True  # until the second answer has come, too
            states = await self._jobs.ended_as_mine(holder, [ended.job for ended in unsure])
            written |= states.keys()
            for ended in unsure:
                match states.get(ended.job.id), ended.move:
                    case JobState.DONE, _:
                        ended.move = Complete(None)
                    case JobState.DEAD, Defer(exhausting=exhausting):  # so the commit that broke did happen
                        ended.move = Bury(exhausting.reason, None)
        return written

    def _blame(self, one: JobEnding, error: Exception) -> None:
        plainer = None if may_pass(error) or is_away(error) else _plainer(one.move)
        if plainer is None:
            self._postpone(one, error)
            return
        if isinstance(one.move, Complete):
            self.events.emit(JobResultDropped(one.job.id, one.job.kind, describe(error).partition("\n")[0]))
        one.move, one.size = plainer, _size(plainer)

    def _postpone(self, ended: JobEnding, error: Exception) -> None:
        """Try a refused outcome again later. Raises the error when the server seems to refuse every outcome: the loop then pauses."""
        ended.not_before = elapsed() + min(MAX_PAUSE, FIRST_PAUSE * 2**ended.refusals)
        ended.refusals += 1
        job, move, said = ended.job, type(ended.move).__name__, describe(error)
        self.events.emit(JobFinishRefused(job.id, job.kind, move, ended.refusals, said))
        self._refusals[job.id] = (move.lower(), said)
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= REFUSALS_IN_A_ROW:
            self._refused_in_a_row = 0
            raise error

    def _answered(self, group: list[JobEnding], answer: set[int]) -> None:
        self._refused_in_a_row = 0
        self._forget(group)
        self._tell([ended for ended in group if ended.job.id in answer])
        for ended in group:
            if ended.job.id not in answer:
                self.lost(ended.job, "database")

    def _tell(self, written: list[JobEnding]) -> None:
        wants_completed = self.events.wants(JobCompleted)
        for ended in written:
            move = ended.move
            if isinstance(move, DUE_AGAIN):
                self._hints.look_after(move.delay)
            if wants_completed or not isinstance(move, COMPLETED):
                self.events.emit(_event(ended.job, move, ended.duration))
        if freed := {ended.job.lane for ended in written if ended.job.lane != ended.job.queue}:
            self._hints.free(freed)


async def write(store: Jobs, holder: UUID, jobs: Sequence[ClaimedJob], moves: Sequence[Any]) -> set[int]:
    """Write moves of one kind, with one statement. Returns the ids of the jobs that were written."""
    match moves[0]:
        case Complete():
            return await store.complete(holder, jobs, [m.result for m in moves])
        case RetryAfter():
            return await store.retry(holder, jobs, [m.delay for m in moves], [m.failure for m in moves])
        case SnoozeFor():
            return await store.snooze(holder, jobs, [m.delay for m in moves])
        case Bury():
            return await store.bury(holder, jobs, [m.reason for m in moves], [m.failures for m in moves])
        case Defer():
            exhausting, failures = [m.exhausting for m in moves], [m.failures for m in moves]
            return await store.defer(holder, jobs, [m.delay for m in moves], exhausting, failures)
        case Drop():
            return await store.drop(holder, jobs, [m.reason for m in moves], [m.tick_skipped for m in moves])
        case Release():
            return await store.release(holder, jobs, [m.lane for m in moves], [m.key for m in moves])
    raise AssertionError(f"{moves[0]} is not written")


def _event(job: ClaimedJob, move: Move, duration: float) -> Event:
    """The event about a move that is written."""
    took_ms = round(duration * 1000, 3)
    match move:
        case Complete() | NoMove():
            return JobCompleted(job.id, job.kind, job.queue, job.attempt, took_ms)
        case RetryAfter(delay, failure):
            attempts, ms = (job.attempt, job.max_attempts), delay.total_seconds() * 1000
            retried = JobRetried(job.id, job.kind, job.queue, *attempts, ms, failure.type, failure.message, took_ms)
            return retried.because(failure.error, failure.frames)
        case SnoozeFor(delay):
            return JobSnoozed(job.id, job.kind, job.queue, delay.total_seconds() * 1000)
        case (Bury() as bury) | Buried(bury):
            return _buried(job, bury, took_ms)
        case Defer(delay, exhausting, failures):
            last = failures[-1] if failures and exhausting.tries else None
            how, ms = (exhausting.reason, exhausting.tries), delay.total_seconds() * 1000
            said = (last.type, last.message) if last else ("", "")
            deferred = JobDeferred(job.id, job.kind, job.queue, *how, ms, *said)
            return deferred.because(last.error, last.frames) if last else deferred
        case Drop(reason):
            return JobDropped(job.id, job.kind, job.queue, reason)
        case Release():
            return JobReleased(job.id, job.kind, job.queue)


def _size(move: Move) -> int:
    match move:
        case Complete():
            return len(move.result) if move.result is not None else 0
        case RetryAfter(failure=failure):
            return len(failure.message) + len(failure.traceback)
        case Bury(failures=failures) | Defer(failures=failures):
            return sum(len(failure.message) + len(failure.traceback) for failure in failures)
        case _:
            return 0


def _buried(job: ClaimedJob, bury: Bury, took_ms: float) -> JobBuried:
    known = bury.failure or Exhausting.of(job)
    type_, message = (known.type, known.message) if known is not None else ("", "")
    if bury.failure is None:
        return JobBuried(job.id, job.kind, job.queue, job.attempt, bury.reason, type_, message)
    event = JobBuried(job.id, job.kind, job.queue, job.attempt, bury.reason, type_, message, took_ms)
    return event.because(bury.failure.error, bury.failure.frames)


def _bare(failure: Failure) -> Failure:
    return replace(failure, message="", traceback="")


def _plainer(move: Move) -> Move | None:
    """The same move without the texts that the database may have refused; None when it has no text to omit."""
    match move:
        case Complete(str()):
            return Complete(None)
        case RetryAfter(delay, failure) if failure.traceback or failure.message:
            return RetryAfter(delay, _bare(failure))
        case Bury(failures=failures) if any(failure.traceback or failure.message for failure in failures):
            return Bury("unstorable reason", *map(_bare, failures))
        case Defer(delay, exhausting, failures) if any(failure.traceback or failure.message for failure in failures):
            bare = replace(exhausting, reason="unstorable reason", message="")
            return Defer(delay, bare, tuple(map(_bare, failures)))
        case Drop(reason, tick_skipped) if reason != "unstorable reason":
            return Drop("unstorable reason", tick_skipped)
        case _:
            return None
