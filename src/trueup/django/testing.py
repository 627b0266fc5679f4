"""Jobs in Django's tests: finds enqueued jobs, and runs them on the test's connection and inside its transaction.

A TestCase holds a transaction open that no other session can see into, a worker's included. So `run_jobs` claims, calls and
finishes with the statements of a worker, but on Django's connection and in the test's own thread. It is not a complete worker:
timeouts, limits, rates and `exhausted=` do not apply. A TransactionTestCase commits, and may run a real worker or ManualWorker
instead.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import signature
from typing import Any, NoReturn
from uuid import uuid4

from asgiref.sync import async_to_sync, sync_to_async
from psycopg.pq import TransactionStatus
from pydantic_core import to_jsonable_python

from trueup.django import get_app
from trueup.django.application import DjangoApp
from trueup.django.database import wrapper
from trueup.django.models import LiveJob
from trueup.errors import ConfigError
from trueup.jobs.context import Context
from trueup.jobs.decide import Bury, Complete, Drop, Move, RetryAfter, SnoozeFor, decide
from trueup.jobs.definition import Job
from trueup.jobs.job import ClaimedJob
from trueup.jobs.outcome import Discard, Outcome, Raised, Returned, Snooze, Unfit
from trueup.jobs.payload import encode_result
from trueup.leases.lost import LostSignal
from trueup.store.db.blocking import BlockingDatabase, finish
from trueup.store.db.load import Statements
from trueup.store.db.message import Fetched
from trueup.store.db.steps import fetch_sync
from trueup.store.jobs import Jobs
from trueup.store.workers import Identity, Workers
from trueup.work.jobs.finisher import write
from trueup.work.jobs.runner import tick_of

LEASE = timedelta(hours=1)
TASK_KINDS = ("django.task", "django.async_task")  # as in tasks.py, which needs a package that few have
NO_TRANSACTION = (
    "run_jobs has no ctx.transaction(); use a TransactionTestCase and ManualWorker for a handler that needs it"
)


def enqueued(job: Any = None, /, **arguments: Any) -> list[LiveJob]:
    """Jobs that are queued or running, oldest first: of a job or one of Django's tasks, with these among their arguments."""
    found = LiveJob.objects.using(get_app().alias).order_by("id")
    if (path := getattr(job, "module_path", None)) is not None:
        found = found.filter(kind__in=TASK_KINDS, args__path=path)
    elif job is not None:
        found = found.filter(kind=job.kind)
    wanted = to_jsonable_python(arguments)

    def fits(given: Mapping[str, Any]) -> bool:
        return all(name in given and given[name] == value for name, value in wanted.items())

    return [each for each in found if fits(_arguments(job, each.args))]


def assert_enqueued(job: Any, /, *, times: int | None = None, **arguments: Any) -> list[LiveJob]:
    """Raise AssertionError unless a run of this job or task with these arguments is enqueued; with `times`, exactly that many."""
    found = enqueued(job, **arguments)
    if len(found) == times if times is not None else found:
        return found
    name = getattr(job, "module_path", None) or job.kind
    what = f"{name} with {arguments}" if arguments else name
    expected = "at least one" if times is None else times
    there = "\n".join(f"  {each.kind} {each.args}" for each in enqueued()) or "  none"
    raise AssertionError(f"{what}: {expected} expected, {len(found)} enqueued. All live jobs:\n{there}")


def assert_not_enqueued(job: Any, /, **arguments: Any) -> None:
    assert_enqueued(job, times=0, **arguments)


def _arguments(job: Any, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments by name, also positional ones of a task."""
    if not hasattr(job, "module_path"):
        return stored
    bound = signature(job.func).bind_partial(*[None] * job.takes_context, *stored["args"], **stored["kwargs"])
    return bound.arguments


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a job."""

    job_id: int
    kind: str
    attempt: int
    result: Any
    error: BaseException | None


def run_jobs(*, now: datetime | None = None, reraise: bool = True) -> list[Ran]:
    """Run jobs until none is due, also those that they enqueue. A job that fails is retried only when its time has come.

    An error of a handler is written to the job, as a worker would, and raised here unless `reraise` is False. `now` replaces the
    current time: with a later one, delayed jobs are due.
    """
    runner = JobRunner(get_app(), now)
    ran: list[Ran] = []
    with runner.registered():
        while claimed := runner.claim():
            for job in claimed:
                done = runner.run(job)
                ran.append(done)
                if reraise and done.error is not None and not isinstance(done.error, Snooze | Discard):
                    raise done.error
    return ran


def clear_jobs() -> None:
    """Forget every job, tick and row of reconcilers: for the setUp of a TransactionTestCase, whose flush leaves trueup's tables."""
    app = get_app()
    finish(OnDjangosConnection(app.alias).fetch(app.store.statements["testing/clear"]))


class OnDjangosConnection(BlockingDatabase):
    def __init__(self, alias: str) -> None:
        self._alias = alias

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched:
        connection = wrapper(self._alias)
        connection.ensure_connection()
        return fetch_sync(connection.connection, query, params or {})

    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched:
        # The planner's settings would last until the test's transaction ends.
        return await self.fetch(query, params)


class Fixed:
    """A clock that stands still."""

    def __init__(self, now: datetime | None) -> None:
        self._now = now

    def now(self) -> datetime | None:
        return self._now

    def elapsed(self) -> float:
        return 0.0


class JobRunner:
    """Runs jobs, and is the JobAccess of the handlers' contexts (`jobs.context.JobAccess`)."""

    def __init__(self, app: DjangoApp, now: datetime | None) -> None:
        self._app = app
        self._holder = uuid4()
        self._database = OnDjangosConnection(app.alias)
        clock: Any = Fixed(now) if now is not None else app.clock
        self._statements = Statements(app.settings.schema, clock=clock, aging=app.settings.aging)
        self._jobs = Jobs(self._database, self._statements)
        self._workers = Workers(self._database, self._statements)
        self._clock = clock
        self._random = random.Random(0)  # noqa: S311 - jitter of retries

    @contextmanager
    def registered(self) -> Iterator[None]:
        identity = Identity(self._holder, "test", os.getpid(), None, ("default",), 1)
        finish(self._workers.register(identity, LEASE))
        try:
            yield
        finally:
            if wrapper(self._app.alias).connection.info.transaction_status != TransactionStatus.INERROR:
                params = {"now": self._clock.now(), "holder": self._holder}
                finish(self._database.fetch(self._statements["workers/leave"], params))

    def claim(self) -> list[ClaimedJob]:
        kinds = [job.kind for job in self._app.registry]
        lanes = LiveJob.objects.using(self._app.alias).filter(state="queued", kind__in=kinds)
        found: list[ClaimedJob] = []
        for lane in lanes.order_by("lane").values_list("lane", flat=True).distinct():
            found += finish(self._jobs.claim(self._holder, lane, 1, kinds))
        return found

    def run(self, job: ClaimedJob) -> Ran:
        definition = self._app.registry[job.kind]
        outcome: Outcome
        failed: type[Unfit | Raised] = Unfit
        result, error, trace = None, None, None
        try:
            args, kwargs = definition.arguments.load(job.args)
            failed = Raised
            with self._guarded():
                result = self._call(definition, job, args, kwargs)
            outcome = Returned(None if result is None else encode_result(result, self._app.settings.result_limit))
        except Exception as raised:
            error, trace = raised, raised.__traceback__
            outcome = failed(raised)
        self._write(job, decide(outcome, job, definition.retry, self._random))
        if error is not None:
            error.__traceback__ = trace  # for the report of the test
        return Ran(job.id, job.kind, job.attempt, result, error)

    def _call(self, definition: Job[..., Any], job: ClaimedJob, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if definition.arguments.context is not None:
            kwargs[definition.arguments.context] = Context(job, LostSignal(), self)
        if definition.arguments.tick is not None:
            kwargs[definition.arguments.tick] = tick_of(job)
        call = async_to_sync(definition.function) if definition.is_async else definition.function
        return call(*args, **kwargs)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Keeps a handler's failed statement from breaking the test's transaction. Without a failure, the handler's writes
        stay."""
        connection = wrapper(self._app.alias)
        if not connection.in_atomic_block:
            yield
            return
        savepoint = connection.savepoint()
        try:
            yield
        finally:
            if connection.needs_rollback or connection.connection.info.transaction_status == TransactionStatus.INERROR:
                connection.needs_rollback = False
                connection.savepoint_rollback(savepoint)
            else:
                connection.savepoint_commit(savepoint)

    def _write(self, job: ClaimedJob, move: Move) -> None:
        if not isinstance(move, Complete | RetryAfter | SnoozeFor | Bury | Drop):
            raise ConfigError(f"job {job.id} ({job.kind}) needs a worker: {type(move).__name__}")
        finish(write(self._jobs, self._holder, [job], [move]))

    # -- JobAccess --------------------------------------------------------------------------------------------------------

    def check(self, job: ClaimedJob) -> None:
        """Does nothing: no worker can claim the job."""

    async def progress(self, job: ClaimedJob, percent: float, note: str | None) -> None:
        await sync_to_async(self.progress_sync)(job, percent, note)

    def progress_sync(self, job: ClaimedJob, percent: float, note: str | None) -> None:
        finish(self._jobs.progress(job, percent, note))

    def transaction(self, context: Context, result: Any) -> NoReturn:
        raise ConfigError(NO_TRANSACTION)
