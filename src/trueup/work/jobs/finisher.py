"""Writes down how jobs ended, many at a time.

Outcomes are gathered for a few milliseconds and written with one statement per kind of move (group commit); each row is
judged alone by its fence, so one lost claim does not touch its neighbours. Nothing is written once the lease is no longer
trusted. When the connection breaks mid-statement the outcome is unknown: the statement is sent again, which cannot do harm
because of the fence, and a row that then does not come back is looked up by its term before it counts as lost.

When PostgreSQL refuses a statement, or a value cannot even be sent, the group is halved until the culprit is alone. It is then
written with less said about it. What is refused all the same (somebody has its row locked, say) stays pending and is tried again
with growing pauses, while everything else goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from trueup import faults
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
from trueup.jobs.decide import Buried, Bury, Complete, Defer, Drop, Move, Nothing, Release, RetryAfter, SnoozeFor
from trueup.jobs.exhausted import Exhausting
from trueup.jobs.failure import Failure, describe
from trueup.jobs.job import ClaimedJob
from trueup.jobs.states import JobState
from trueup.store.db.connect import is_away, may_pass, unanswered
from trueup.store.jobs import Jobs
from trueup.work.jobs.hand import Run
from trueup.work.registration import Registration
from trueup.work.service import Service

MAX_AT_ONCE = 1_000
MAX_BYTES = 8_000_000  # of results and error texts in one statement; one outcome may be larger
FIRST_PAUSE, MAX_PAUSE = 0.25, 30.0  # seconds until an outcome that was refused is tried again
REFUSALS_IN_A_ROW = 3  # with nothing written in between, it is the server that refuses, not a row


@dataclass(slots=True)
class Ended:
    job: ClaimedJob
    move: Move
    duration: float
    uncertain: bool = False  # a statement with it was sent and no answer came
    size: int = 0  # of its texts
    answered: bool = False  # a server was there and asked for it to be sent again
    refusals: int = 0  # alone, with nothing left to leave out
    not_before: float = 0.0


class Finisher(Service):
    name = "finisher"

    def __init__(
        self,
        jobs: Jobs,
        events: Events,
        registration: Callable[[], Registration],
        *,
        gather_for: timedelta,
        on_delay: Callable[[timedelta], None],
        on_room: Callable[[], None],
        on_freed: Callable[[set[str]], None],
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._registration = registration
        self._gather_for = gather_for.total_seconds()
        self._on_delay = on_delay
        self._on_room = on_room
        self._on_freed = on_freed  # jobs of these lanes are no longer running
        self._pending: list[Ended] = []
        self._refused_in_a_row = 0
        self._flushed = asyncio.Event()
        self._flushed.set()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def knows(self) -> set[tuple[int, int]]:
        """(id, term) of what is noted and not yet written."""
        return {(ended.job.id, ended.job.term) for ended in self._pending}

    def put(self, run: Run, move: Move, *, uncertain: bool = False) -> None:
        """Note how a run ended; it is written soon."""
        if isinstance(move, Nothing):
            if move.lost:
                self.lost(run)
                return
            if self.events.wants(JobCompleted):
                self.events.emit(_completed(run.job, elapsed() - run.started))
        if isinstance(move, Buried):
            self.events.emit(_buried(run.job, move.bury))
        if isinstance(move, Nothing | Buried):
            if run.job.lane != run.job.queue:
                self._on_freed({run.job.lane})
            return
        self._pending.append(Ended(run.job, move, elapsed() - run.started, uncertain, _size(move)))
        self._flushed.clear()
        self._wake.set()

    def put_unstarted(self, jobs: Iterable[ClaimedJob], move: Move | None = None) -> None:
        """Jobs in hand that will not be started here: given back, unless another move is given."""
        for job in jobs:
            self._pending.append(Ended(job, move or Release(job.lane, job.key), 0))
            self._flushed.clear()
        self._wake.set()

    def lost(self, run: Run) -> None:
        self.events.emit(JobClaimLost(run.job.id, run.job.kind, run.job.term, "local"))

    async def flushed(self) -> None:
        """Returns when everything noted so far is written or refused."""
        await self._flushed.wait()

    async def run_once(self) -> float:
        """Write what is pending, one statement per kind of move. Then there is nothing to do until something ends."""
        if self._pending and self._gather_for and len(self._pending) < MAX_AT_ONCE and not self._stop.is_set():
            await asyncio.sleep(self._gather_for)
        while batch := self._next():
            if faults.ARMED:
                faults.hit("before_finish")
            for cls in (Complete, RetryAfter, SnoozeFor, Bury, Defer, Drop, Release):
                group = [ended for ended in batch if type(ended.move) is cls]
                if group:
                    await self._settle(group)
            if faults.ARMED:
                faults.hit("after_finish")
            self._on_room()
        if self._pending:
            return max(0.0, min(ended.not_before for ended in self._pending) - elapsed())
        self._flushed.set()
        return 60.0

    def _next(self) -> list[Ended]:
        """What is to be written now, as much as one statement may carry."""
        batch: list[Ended] = []
        size, now = 0, elapsed()
        for ended in self._pending:
            if ended.not_before > now:
                continue
            size += ended.size
            if batch and size > MAX_BYTES:
                break
            batch.append(ended)
            if len(batch) == MAX_AT_ONCE:
                break
        return batch

    async def _settle(self, group: list[Ended]) -> None:
        """Write these rows of one move and say what became of each. Raises what is worth repeating, with all still pending."""
        registration = self._registration()
        ours: list[Ended] = []
        foreign: list[Ended] = []
        trusted, holder = registration.trusted, registration.holder
        for ended in group:
            (ours if trusted and ended.job.holder == holder else foreign).append(ended)
        written: set[int] = set()
        if ours:
            try:
                written = await self._send(registration, ours)
                self._refused_in_a_row = 0
            except Exception as error:
                if self._worth_repeating(ours, error):
                    raise
                await self._refused(ours, error)
                ours = []
        unsure = [ended for ended in ours if ended.uncertain and ended.job.id not in written]
        if unsure:
            states = await self._jobs.ended_as_mine(registration.holder, [ended.job for ended in unsure])
            written |= states.keys()
            for ended in unsure:
                match states.get(ended.job.id), ended.move:
                    case JobState.DONE, _:
                        ended.move = Complete(None)
                    case JobState.DEAD, Defer(exhausting=exhausting):  # so the commit that broke did happen
                        ended.move = Bury(exhausting.reason, None)
        self._forget(ours, foreign)
        self._report(ours, foreign, written)

    def _worth_repeating(self, group: list[Ended], error: Exception) -> bool:
        """Whether to send the whole group again: the database is away. What a server says twice may be about one row."""
        if not is_away(error):
            return False
        if unanswered(error):
            for ended in group:
                ended.uncertain = True
            return True
        known = all(ended.answered for ended in group)
        for ended in group:
            ended.answered = True
        return not known

    async def _refused(self, group: list[Ended], error: Exception) -> None:
        """One row that is refused must not hold up the others, nor be lost itself: it ends with less said about it."""
        if len(group) > 1:
            middle = len(group) // 2
            await self._settle(group[:middle])
            await self._settle(group[middle:])
            return
        (ended,) = group
        plainer = None if may_pass(error) or is_away(error) else _plainer(ended.move)
        if plainer is None:
            self._postpone(ended, error)
            return
        if isinstance(ended.move, Complete):
            self.events.emit(JobResultDropped(ended.job.id, ended.job.kind, describe(error).partition("\n")[0]))
        ended.move = plainer
        await self._settle(group)

    def _postpone(self, ended: Ended, error: Exception) -> None:
        """Raises the error when the server seems to refuse everything: the loop then pauses."""
        ended.not_before = elapsed() + min(MAX_PAUSE, FIRST_PAUSE * 2**ended.refusals)
        ended.refusals += 1
        job, move = ended.job, type(ended.move).__name__
        self.events.emit(JobFinishRefused(job.id, job.kind, move, ended.refusals, describe(error)))
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= REFUSALS_IN_A_ROW:
            self._refused_in_a_row = 0
            raise error

    def _forget(self, *groups: list[Ended]) -> None:
        settled = {id(ended) for group in groups for ended in group}
        self._pending = [ended for ended in self._pending if id(ended) not in settled]

    def _report(self, ours: list[Ended], foreign: list[Ended], written: set[int]) -> None:
        freed: set[str] = set()
        for ended in ours:
            if ended.job.id in written:
                if ended.job.lane != ended.job.queue:
                    freed.add(ended.job.lane)
                for event in self._done(ended):
                    self.events.emit(event)
            else:
                self.events.emit(_lost(ended, "database"))
        for ended in foreign:
            self.events.emit(_lost(ended, "local"))
        if freed:
            self._on_freed(freed)

    async def _send(self, registration: Registration, group: list[Ended]) -> set[int]:
        jobs = [ended.job for ended in group]
        moves = [ended.move for ended in group]
        match moves[0]:
            case Complete():
                return await self._jobs.complete(
                    registration.holder, jobs, [m.result for m in moves if isinstance(m, Complete)]
                )
            case RetryAfter():
                retries = [m for m in moves if isinstance(m, RetryAfter)]
                return await self._jobs.retry(
                    registration.holder, jobs, [m.delay for m in retries], [m.failure for m in retries]
                )
            case SnoozeFor():
                return await self._jobs.snooze(
                    registration.holder, jobs, [m.delay for m in moves if isinstance(m, SnoozeFor)]
                )
            case Bury():
                buried = [m for m in moves if isinstance(m, Bury)]
                return await self._jobs.bury(
                    registration.holder, jobs, [m.reason for m in buried], [m.failures for m in buried]
                )
            case Defer():
                later = [m for m in moves if isinstance(m, Defer)]
                return await self._jobs.defer(
                    registration.holder,
                    jobs,
                    [m.delay for m in later],
                    [m.exhausting for m in later],
                    [m.failures for m in later],
                )
            case Drop():
                drops = [m for m in moves if isinstance(m, Drop)]
                return await self._jobs.drop(
                    registration.holder, jobs, [m.reason for m in drops], [m.tick_skipped for m in drops]
                )
            case Release():
                releases = [m for m in moves if isinstance(m, Release)]
                return await self._jobs.release(
                    registration.holder, jobs, [m.lane for m in releases], [m.key for m in releases]
                )
            case Buried() | Nothing():
                return set()

    def _done(self, ended: Ended) -> list[Event]:
        job, move = ended.job, ended.move
        match move:
            case Complete():
                return [_completed(job, ended.duration)] if self.events.wants(JobCompleted) else []
            case RetryAfter(delay, failure):
                self._on_delay(delay)
                return [
                    JobRetried(
                        job.id,
                        job.kind,
                        job.queue,
                        job.attempt,
                        job.max_attempts,
                        delay.total_seconds() * 1000,
                        failure.type,
                        failure.message,
                    ).because(failure.error, failure.frames)
                ]
            case SnoozeFor(delay):
                self._on_delay(delay)
                return [JobSnoozed(job.id, job.kind, job.queue, delay.total_seconds() * 1000)]
            case Bury():
                return [_buried(job, move)]
            case Defer(delay, exhausting, failures):
                self._on_delay(delay)
                return [_deferred(job, delay, exhausting, failures)]
            case Drop(reason):
                return [JobDropped(job.id, job.kind, job.queue, reason)]
            case Release():
                return [JobReleased(job.id, job.kind, job.queue)]
            case Buried() | Nothing():
                return []


def _size(move: Move) -> int:
    match move:
        case Complete(str() as result):
            return len(result)
        case RetryAfter(failure=failure):
            return len(failure.message) + len(failure.traceback)
        case Bury(failures=failures) | Defer(failures=failures):
            return sum(len(failure.message) + len(failure.traceback) for failure in failures)
        case _:
            return 0


def _completed(job: ClaimedJob, duration: float) -> JobCompleted:
    return JobCompleted(job.id, job.kind, job.queue, job.attempt, round(duration * 1000, 3))


def _lost(ended: Ended, refused_by: str) -> JobClaimLost:
    return JobClaimLost(ended.job.id, ended.job.kind, ended.job.term, refused_by)


def _buried(job: ClaimedJob, bury: Bury) -> JobBuried:
    known = bury.failure or Exhausting.of(job)
    type_, message = (known.type, known.message) if known is not None else ("", "")
    event = JobBuried(job.id, job.kind, job.queue, job.attempt, bury.reason, type_, message)
    return event if bury.failure is None else event.because(bury.failure.error, bury.failure.frames)


def _deferred(job: ClaimedJob, delay: timedelta, exhausting: Exhausting, failures: tuple[Failure, ...]) -> JobDeferred:
    last = failures[-1] if failures and exhausting.tries else None
    event = JobDeferred(
        job.id,
        job.kind,
        job.queue,
        exhausting.reason,
        exhausting.tries,
        delay.total_seconds() * 1000,
        last.type if last else "",
        last.message if last else "",
    )
    return event.because(last.error, last.frames) if last else event


def _bare(failure: Failure) -> Failure:
    return replace(failure, message="", traceback="")


def _plainer(move: Move) -> Move | None:
    """The same move without the texts that the database may have refused; None when there is nothing left to leave out."""
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
