"""Runs handlers: a set of runners, each of which takes a job from the hand, calls its function and passes the outcome on.

A runner is a task that lives on from job to job, because a task per job costs more than a short handler. It retires, and a
fresh one takes its place, when it was cancelled or when a handler left something behind in its context variables, so no job
sees traces of another.

A job ends here in one of four ways: its function returned or raised; it was asked to stop; the worker is shutting down; or
the lease is gone. Cancelling a handler is a request: one that ignores it keeps its place until it returns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import InvalidArguments, LostClaim
from trueup.events import Events, JobFailedAfterDone, JobResultDropped, JobStarted
from trueup.jobs.context import Context, check_ended
from trueup.jobs.decide import Bury, Move, Release, decide
from trueup.jobs.definition import Job, stored_key
from trueup.jobs.exhausted import Exhausting
from trueup.jobs.failure import describe, taken_frames, type_name
from trueup.jobs.job import ClaimedJob, Tick
from trueup.jobs.middleware import Middlewares
from trueup.jobs.outcome import (
    NOTHING_RETURNED,
    AskedToStop,
    Finished,
    Interrupted,
    Misplaced,
    Outcome,
    Over,
    Raised,
    Returned,
    Undone,
    Unfit,
    Untrusted,
)
from trueup.jobs.payload import encode_result
from trueup.jobs.registry import Registry
from trueup.leases.lost import LostSignal
from trueup.work.calling import Caller, is_own_ending
from trueup.work.jobs.exhausting import Exhauster
from trueup.work.jobs.finisher import Finisher
from trueup.work.jobs.hand import Hand, RunningJob
from trueup.work.jobs.hints import Hints
from trueup.work.jobs.transactions import LeasedAccess

# Jobs started by all runners together in one turn of the event loop: handlers that never wait must leave it to others, too. In each
# turn a part of the answer to a claim is read, so long turns make claims slow.
STARTS_PER_TURN = 100


class Runner:
    def __init__(
        self,
        hand: Hand,
        hints: Hints,
        registry: Registry,
        finisher: Finisher,
        events: Events,
        access: LeasedAccess,
        middlewares: Middlewares,
    ) -> None:
        self._hand = hand
        self._hints = hints
        self._registry = registry
        self._finisher = finisher
        self._events = events
        self._access = access
        self.caller = Caller(events, middlewares)
        self._random = random.Random()  # noqa: S311 - jitter of retries
        self._exhausting = Exhauster(access, self.caller, self._random)
        self._runners: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False
        self._held = False
        self._started_in_turn = 0
        self.started = 0  # jobs begun since the start
        # The claimer derives the pace from it: jobs that begin and do not end are a reason to fetch fewer.
        self.ended = 0

    def rouse(self, jobs: int) -> None:
        """Wake or create runners: as many as there are jobs, within the concurrency."""
        if self._held:
            return
        while jobs > 0 and self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                jobs -= 1
        while jobs > 0 and len(self._runners) < self._hand.concurrency and not self._closed:
            runner = asyncio.create_task(self._runner(), name="trueup runner")
            self._runners.add(runner)
            runner.add_done_callback(self._retired)
            jobs -= 1

    def hold(self) -> None:
        """From now on no job starts by itself: jobs wait in hand for `run_once`."""
        self._held = True

    async def run_once(self) -> Outcome | None:
        """Run one job that is in hand, up to its outcome. Returns None when no job is in hand. For tests and manual workers."""
        job = self._hand.take()
        if job is None:
            return None
        return await asyncio.create_task(self._alone(job))

    async def _alone(self, job: ClaimedJob) -> Outcome:
        return await self._one(job, _current_task())

    async def close(self) -> None:
        """End the idle runners. Runners with a job go on with it."""
        self._closed = True
        for waiter in self._idle:
            if not waiter.done():
                waiter.cancel()
        idle = [
            runner for runner in self._runners if not any(run.task is runner for run in self._hand.running.values())
        ]
        for runner in idle:
            runner.cancel()
        if idle:
            await asyncio.wait(idle)
        self.caller.close()

    def _retired(self, runner: asyncio.Task[None]) -> None:
        self._runners.discard(runner)
        if not runner.cancelled() and (error := runner.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a trueup runner failed", "exception": error, "task": runner}
            )
        if not self._closed:
            self.rouse(min(self._hand.waiting, 1))

    async def _runner(self) -> None:
        clean, task = copy_context(), _current_task()
        while not self._closed:
            if self._started_in_turn == STARTS_PER_TURN:
                await self._rest()
                continue
            job = self._hand.take()
            if job is None:
                self._hints.room()
                await self._rest()
                continue
            self._count_start()
            await self._one(job, task)
            if self._hand.waiting <= self._hints.low_water:
                self._hints.room()
            if _changed(clean):
                return

    def _count_start(self) -> None:
        if self._started_in_turn == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._started_in_turn += 1

    def _next_turn(self) -> None:
        self._started_in_turn = 0
        # One runner is enough for handlers that never wait. For others, twice as many run from turn to turn.
        self.rouse(min(self._hand.waiting, 1 + len(self._hand.running)))

    async def _rest(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        await waiter

    async def _one(self, job: ClaimedJob, task: asyncio.Task[Any]) -> Outcome:
        definition = self._registry.get(job.kind)
        if definition is None:
            # Renamed by hand, in the lane of its old kind: a worker that knows the kind takes it from its queue.
            self._finisher.put_unstarted([job], Release(job.queue, ""))
            return Misplaced(job.queue, "")
        run = RunningJob(job, task, elapsed())
        self._hand.started(run)
        self.started += 1
        outcome: Outcome = Interrupted()  # should this process end here, it has nothing else to say
        move: Move | None = None
        try:
            outcome = await self._outcome(run, definition)
            if definition.exhausted is not None and run.cancelled != "lost":
                move = decide(outcome, job, definition.retry, self._random)
                if isinstance(move, Bury):
                    move = await self._exhausting.bury(run, definition, move)
        except Exception as error:  # trueup's own, not the handler's: the job must not stay running for ever
            outcome = Raised(error)
        finally:
            self._hand.ended(run)
            self.ended += 1
            if definition.executor is not None:
                self._hints.hear(definition.lane)
            if run.lost is not None:
                run.lost.set()  # the context has ended: a thread that a timeout left behind learns it here
            faults.hit("after_handler")
            if run.cancelled != "lost":
                if move is None:
                    move = decide(outcome, job, definition.retry, self._random)
                self._finisher.put(run, move, uncertain=run.uncertain)
                move = None  # its failure has the handler's frames, which keep this one from Python 3.12 on: a cycle
            else:
                self._finisher.lost(run.job)
        if run.cancelled is not None or task.cancelling():
            raise asyncio.CancelledError  # this runner was cancelled; the next one starts afresh
        return outcome

    async def _outcome(self, run: RunningJob, definition: Job[Any, Any]) -> Outcome:
        job = run.job
        if (uncalled := self._uncalled(job)) is not None:
            return uncalled
        if self._events.wants(JobStarted):
            self._events.emit(
                JobStarted(job.id, job.kind, job.queue, job.attempt, job.term, job.lateness.total_seconds() * 1000)
            )
        faults.hit("before_handler")
        context: Context | None = None
        outcome: Outcome
        try:
            if job.lane != definition.lane and (definition.controls.any or job.lane != job.queue):
                return Misplaced(definition.controls.lane(job.kind, job.queue), stored_key(definition, job))
            try:
                args, kwargs = definition.arguments.load(job.args)
            except InvalidArguments as error:
                return Unfit(error)
            context = self._fill_in(run, definition, kwargs)
            result = await self._call(run, definition, args, kwargs)
            if context is not None:
                check_ended(context)
        except BaseException as error:
            if is_own_ending(error, cancelled_by_us=run.cancelled is not None):
                outcome = Raised(error)
            elif isinstance(error, asyncio.CancelledError):
                outcome = AskedToStop() if run.cancelled == "stop" else Interrupted()
            else:
                raise
        else:
            outcome = self._returned(job, result)
        if context is not None:
            run.uncertain = context.uncertain
            if isinstance(outcome, Raised) and outcome.error is context.undone_by:
                outcome = Undone(outcome.error)
            if context.finished:
                self._done_already(job, outcome)
                return Finished()
        return outcome

    def _fill_in(self, run: RunningJob, definition: Job[Any, Any], kwargs: dict[str, Any]) -> Context | None:
        """Fill in the parameters for the Context and the Tick. Returns the Context, if there is one."""
        context: Context | None = None
        if definition.arguments.context is not None:
            run.lost = LostSignal()
            context = kwargs[definition.arguments.context] = Context(run.job, run.lost, self._access)
        if definition.arguments.tick is not None:
            kwargs[definition.arguments.tick] = tick_of(run.job)
        return context

    def _uncalled(self, job: ClaimedJob) -> Outcome | None:
        """The outcome of a job whose function is not to be called."""
        try:
            # After a process was stopped for a while, other workers may have taken over the jobs in its hand.
            self._access.check(job)
        except LostClaim:
            return Untrusted()
        if job.asked_to_stop:
            return AskedToStop()
        exhausting = Exhausting.of(job)
        return None if exhausting is None else Over(exhausting.reason)

    def _call(
        self, run: RunningJob, definition: Job[Any, Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        if definition.executor is not None:
            return self.caller.call_elsewhere(definition, args, kwargs, run.must_end, run.job)
        function = partial(definition.function, *args, **kwargs)
        return self.caller.call(
            function, is_async=definition.is_async, timeout=definition.timeout, patient=run.must_end, about=run.job
        )

    def _returned(self, job: ClaimedJob, result: Any) -> Outcome:
        if result is None:
            return NOTHING_RETURNED
        try:
            return Returned(encode_result(result, self._access.result_limit))
        except InvalidArguments as error:
            self._events.emit(JobResultDropped(job.id, job.kind, str(error)))
            return Returned()

    def _done_already(self, job: ClaimedJob, outcome: Outcome) -> None:
        if isinstance(outcome, Raised):
            error = outcome.error
            failed = JobFailedAfterDone(job.id, job.kind, type_name(error), describe(error))
            self._events.emit(failed.because(error, taken_frames(error)))


def tick_of(job: ClaimedJob) -> Tick:
    """The tick that this job runs for. For a job that was enqueued by hand, it is the moment at which the job was due."""
    due_at = job.due_at or job.run_at
    return Tick(job.schedule or job.kind, due_at, job.claimed_at - due_at, job.attempt)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _changed(clean: Variables) -> bool:
    now = copy_context()
    if len(now) != len(clean):
        return True
    for variable, value in now.items():  # noqa: SIM110 - a generator takes longer than what it looks at
        if clean.get(variable, _changed) is not value:
            return True
    return False
