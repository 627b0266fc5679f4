"""Lets a test move an App's time, run what is due, inspect what was enqueued, and kill a worker at the worst moment."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from trueup.app import App
from trueup.dsn import Secret
from trueup.faults import Died, dying_at
from trueup.jobs.definition import Job
from trueup.jobs.outcome import Discard, Raised, Snooze, Unfit
from trueup.jobs.records import JobDetails
from trueup.reconcile.counts import Counts
from trueup.reconcile.reconciler import Reconciler
from trueup.schedules.spec import Spec
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

T = TypeVar("T")

MAX_TICKS = 10_000  # in one `advance` or `due_between`; with more, another unit was probably meant
LIVE = ("queued", "running")

Observe = Callable[[], Any]


@contextmanager
def rebound(app: App, url: str, clock: ManualClock) -> Iterator[App]:
    """Your application's App, moved to this database and clock; the block's end undoes that. Close the App before its end."""
    settings, real = app.settings, app.clock
    app.settings = dataclasses.replace(settings, database_url=Secret(url))
    app.clock = clock
    try:
        yield app
    finally:
        app.settings, app.clock = settings, real


def due_between(what: App | Spec, start: datetime, end: datetime) -> list[tuple[datetime, str]]:
    """The ticks after `start` and up to `end`, as (moment, schedule), in order. It needs no database and only follows the rule:
    `missed=`, `overlap=` and `jitter=` are decided when a worker runs.
    """
    specs = {"": what} if isinstance(what, Spec) else _specs(what)
    found: list[tuple[datetime, str]] = []
    for name, spec in specs.items():
        due = spec.next_after(start)
        while due is not None and due <= end:
            found.append((due, name))
            if len(found) > MAX_TICKS:
                raise ValueError(f"more than {MAX_TICKS:,} ticks between {start} and {end}; ask for a shorter time")
            due = spec.next_after(due)
    return sorted(found)


def _specs(app: App) -> dict[str, Spec]:
    app.discover()
    return {name: entry.spec for name, entry in app._schedules.items()}


class Harness:
    """An App on a database of its own, with a clock that stands still and a worker that does nothing by itself."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self.app = app
        self.clock = clock
        self._worker: ManualWorker | None = None

    async def worker(self) -> ManualWorker:
        """The worker, registered; its steps can be called one by one."""
        if self._worker is None:
            self._worker = ManualWorker(self.app)
            await self._worker.begin()
        return self._worker

    async def drain(self) -> int:
        """Plan the ticks that are due, then run what is due until nothing is. Returns the number of runs."""
        worker = await self.worker()
        await worker.plan()
        return await worker.run_pending()

    async def sweep(self, reconciler: str) -> Counts:
        """Run one whole sweep of a reconciler, move or deletion. Returns what happened to its rows: `.changed`, `.retry`, …"""
        return await (await self.worker()).sweep(reconciler)

    async def advance(self, **duration: float) -> int:
        """Let time pass: `await jobs.advance(hours=3)`. Every tick on the way fires at its own moment. Returns the number of runs.

        Jobs that become due between two ticks (a delay, a retry) run at the next tick, or at the end.
        """
        await self.worker()
        end = self.clock.now() + timedelta(**duration)
        ran = await self.drain()
        for due in dict.fromkeys(moment for moment, _ in due_between(self.app, self.clock.now(), end)):
            self._move_to(due)
            ran += await self.drain()
        self._move_to(end)
        return ran + await self.drain()

    def _move_to(self, moment: datetime) -> None:
        self.clock.advance(seconds=(moment - self.clock.now()).total_seconds())

    # -- what was enqueued ----------------------------------------------------------------------------------------------

    async def enqueued(self, job: Job[..., Any] | str | None = None, /, **arguments: Any) -> list[JobDetails]:
        """Jobs that are queued or running, oldest first: of a kind, and with these among their arguments."""
        await self.app.open()
        kind = job.kind if isinstance(job, Job) else job
        page = await self.app.jobs.list(state=LIVE, kind=kind, limit=1_000)
        found = [await self.app.jobs.get(each.id) for each in reversed(page.jobs)]
        wanted = to_jsonable_python(arguments)
        return [each for each in found if each is not None and wanted.items() <= each.args.items()]

    async def assert_enqueued(
        self, job: Job[..., Any] | str, /, *, times: int | None = None, **arguments: Any
    ) -> list[JobDetails]:
        """Raise AssertionError unless such a job is there; exactly `times` of them, if given."""
        found = await self.enqueued(job, **arguments)
        if len(found) == times if times is not None else found:
            return found
        what = f"{job.kind if isinstance(job, Job) else job}{f' with {arguments}' if arguments else ''}"
        expected = "at least one" if times is None else times
        there = "\n".join(f"  {each.kind} {each.args}" for each in await self.enqueued()) or "  none"
        raise AssertionError(f"{what}: {expected} expected, {len(found)} enqueued. All live jobs:\n{there}")

    # -- idempotency ----------------------------------------------------------------------------------------------------

    async def run_twice(self, job: Job[..., Any] | str, /, *args: Any, **kwargs: Any) -> None:
        """Run one job to its end, but have its worker die before that is written; another worker runs it again.

        This is what a crash, an eviction or a lost connection does in production. A handler that ends in `ctx.transaction()` loses
        its worker right before the commit, any other one after it has returned. Raises what a run raised.
        """
        named = job if isinstance(job, Job) else self.app.named(job)
        handle = await named.enqueue(*args, **kwargs)
        await self._dies(handle.id, named.kind)
        await self._expire()
        await self._undisturbed()
        await handle.result("30s")

    async def assert_idempotent(
        self,
        examples: Mapping[str, tuple[Any, ...] | Mapping[str, Any]],
        observe: Observe | Callable[[], Awaitable[Any]],
    ) -> None:
        """Call every declared handler for the same job, tick or row twice, with a worker that dies before the end is written.

        `examples` has the arguments of one run of each kind of job. The functions of schedules need none; reconcilers are called for
        the rows that are due, which your test has inserted, after the jobs. What `observe` returns must be the same after both deaths.
        Kinds with one attempt are never repeated, and scans cannot be: both are left out. Raises AssertionError that names the kinds
        without an example, the reconciler without a due row, or the handler that repeats its effect; and what a handler raises.
        """
        self.app.discover()
        await self.worker()  # schedules and reconcilers are known from here on
        kinds = [job.kind for job in self.app.registry]
        missing = [kind for kind in kinds if kind not in examples and kind not in self.app._schedules]
        if missing:
            raise AssertionError(f"no example for {', '.join(missing)}: give example arguments for each")
        for kind in kinds:
            if self.app.registry[kind].retry.max_attempts > 1:
                job_id = await self._begun(kind, examples.get(kind, ()))
                await self._same_twice(kind, partial(self._dies, job_id, kind), observe)
                await self._undisturbed()
        for each in self.app._reconcilers.all():
            if isinstance(each, Reconciler):
                await self._same_twice(each.name, partial(self._in_shadow, each.name), observe)

    async def _begun(self, kind: str, given: tuple[Any, ...] | Mapping[str, Any]) -> int:
        if kind in self.app._schedules:
            return await self.app.schedules.trigger(kind)
        args, kwargs = ((), given) if isinstance(given, Mapping) else (given, {})
        return (await self.app.registry[kind].enqueue(*args, **kwargs)).id

    async def _same_twice(self, name: str, call: Callable[[], Awaitable[None]], observe: Observe) -> None:
        seen = [await _seen(observe)]
        for _ in range(2):
            await call()
            seen.append(await _seen(observe))
            await self._expire()
        if seen[1] != seen[2]:
            before, once, twice = (f"{each!r:.200}" for each in seen)
            raise AssertionError(
                f"{name} is not idempotent: before {before}, after one run {once}, after a repetition {twice}"
            )

    async def _dies(self, job_id: int, kind: str) -> None:
        """Run the job with a worker that dies before the outcome is written."""
        worker = ManualWorker(self.app)
        await worker.begin()
        try:
            if job_id not in {each.id for each in await worker.claim()}:
                raise AssertionError(
                    f"job {job_id} of kind {kind} was not claimed; is it delayed, or are others ahead of it?"
                )
            with dying_at("before_commit"):
                while job_id in {each.id for each in worker.worker.hand.in_hand()}:
                    outcome = await worker.run_one()
                    if isinstance(outcome, Raised | Unfit) and not isinstance(outcome.error, Died | Snooze | Discard):
                        raise outcome.error
        finally:
            await worker.end()

    async def _undisturbed(self) -> None:
        """A worker that does not die runs what is due."""
        worker = ManualWorker(self.app)
        await worker.begin()
        await worker.run_pending()
        await worker.end()

    async def _in_shadow(self, name: str) -> None:
        """Call the handler of a reconciler for every due row; its writes through trueup are rolled back, as by a crash."""
        looked = await self.app.reconcilers.dry_run(name, shadow=True)
        if not looked.rows:
            raise AssertionError(f"no row is due for {name}: insert one first, or its handler is not tested")
        if failed := [row["outcome"] for row in looked.rows if row["outcome"].startswith("raises ")]:
            raise AssertionError(f"{name} {failed[0]}")

    async def _expire(self) -> None:
        """Let time pass: the leases of dead workers expire, another worker takes over their jobs, and those are due again."""
        self.clock.advance(seconds=2 * self.app.settings.lease_for.total_seconds())
        rescuer = ManualWorker(self.app)
        await rescuer.begin()
        await rescuer.rescue()
        await rescuer.end()
        self.clock.advance(hours=1)

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.end()
            self._worker = None
        await self.app.close()


async def _seen(observe: Observe) -> Any:
    found = observe()
    return await found if isawaitable(found) else found


class SyncHarness:
    """The same for tests without an event loop. Handlers run in a loop of its own, inside the call."""

    def __init__(self, harness: Harness) -> None:
        self.app = harness.app
        self.clock = harness.clock
        self._harness = harness
        self._runner = asyncio.Runner()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Await anything else of the App's."""
        if asyncio._get_running_loop() is not None:
            if iscoroutine(awaitable):
                awaitable.close()
            raise RuntimeError(
                "trueup_sync is for plain tests: a coroutine test takes trueup_async, and awaits its methods"
            )

        async def wait() -> T:
            return await awaitable

        return self._runner.run(wait())

    def drain(self) -> int:
        return self.run(self._harness.drain())

    def sweep(self, reconciler: str) -> Counts:
        return self.run(self._harness.sweep(reconciler))

    def advance(self, **duration: float) -> int:
        return self.run(self._harness.advance(**duration))

    def enqueued(self, job: Job[..., Any] | str | None = None, /, **arguments: Any) -> list[JobDetails]:
        return self.run(self._harness.enqueued(job, **arguments))

    def assert_enqueued(
        self, job: Job[..., Any] | str, /, *, times: int | None = None, **arguments: Any
    ) -> list[JobDetails]:
        return self.run(self._harness.assert_enqueued(job, times=times, **arguments))

    def run_twice(self, job: Job[..., Any] | str, /, *args: Any, **kwargs: Any) -> None:
        self.run(self._harness.run_twice(job, *args, **kwargs))

    def assert_idempotent(self, examples: Mapping[str, tuple[Any, ...] | Mapping[str, Any]], observe: Observe) -> None:
        self.run(self._harness.assert_idempotent(examples, observe))

    def close(self) -> None:
        self.run(self._harness.close())
        self._runner.close()
