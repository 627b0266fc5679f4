"""Executors as a worker uses them: how many calls fit, and what happens when one of their processes dies.

A call waits here, not inside the executor, for a place, so that its timeout runs while it runs. A call that outlived its timeout
keeps its place until it really ends.

When a process of a pool dies, every call inside fails alike, and nothing says whose fault it was. The pool is made anew by its
factory, and each of those calls runs once more, alone. One that breaks the pool again is the culprit, and fails; the others lose
no attempt. Without a factory the pool cannot be replaced: its jobs are postponed, and an event says so. A factory that raises fails the
attempt of each job that needs it, and no other job.

A cluster replaces its own processes. While it is unreachable it has no places, so no job is claimed for it; those that were on it
when it went away are postponed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

from trueup.clock import elapsed
from trueup.events import Events, ExecutorBroken
from trueup.jobs.definition import ExecutorSource, Job
from trueup.jobs.failure import describe
from trueup.jobs.outcome import Snooze
from trueup.options import wrong
from trueup.work.executors.cluster import ChildDied, ClusterAway, ClusterExecutor
from trueup.work.executors.remote import opened, submit
from trueup.work.threads import settle

UNREPLACEABLE_PAUSE = timedelta(seconds=30)  # until a job tries a broken executor again that we cannot replace
FACTORY_PAUSE = 1.0  # seconds
AWAY_PAUSE = timedelta(seconds=2)  # after that they wait as queued jobs until the cluster has places again

Wait = Callable[["asyncio.Future[Any]"], Awaitable[Any]]


class Pools:
    """The executors of one worker, each shared by the jobs that name it."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._pools: dict[int, ExecutorPool] = {}
        self.on_places: Callable[[], None] = lambda: None  # an executor has more places than before, or fewer

    def of(self, job: Job[Any, Any]) -> ExecutorPool:
        assert job.executor is not None
        pool = self._pools.get(id(job.executor))
        if pool is None:
            pool = self._pools[id(job.executor)] = ExecutorPool(job.executor, self._events, lambda: self.on_places())
        return pool

    def close(self) -> None:
        """End the executors that were made here, with their processes."""
        for pool in self._pools.values():
            pool.close()

    def end_all(self) -> None:
        """Also end those that were passed in: for a process that is about to exit, and would wait for them."""
        self.close()
        for pool in self._pools.values():
            pool.end()


def _processes(executor: Executor) -> list[Any]:
    return list((getattr(executor, "_processes", None) or {}).values())


def _check_unbroken(executor: Executor) -> None:
    """Raises BrokenExecutor when a process has died: the executor itself may notice that only after the next call is submitted."""
    with suppress(AssertionError):  # of a pool that was made before a fork: only the parent can ask
        if any(getattr(process, "exitcode", None) for process in _processes(executor)):
            raise BrokenExecutor("a process in the process pool was terminated abruptly")


class ExecutorPool:
    def __init__(self, source: ExecutorSource, events: Events, on_places: Callable[[], None]) -> None:
        self._source = source
        self._owned = not isinstance(source, Executor)
        self._executor: Executor | None = source if isinstance(source, Executor) else None
        self._watched: Executor | None = None
        self._events = events
        self._on_places = on_places
        self._changed = asyncio.Event()
        self._waited_for: set[Future[Any]] = set()
        self._inside: set[Future[Any]] = set()
        self._left_behind: set[Future[Any]] = set()
        self._closed = False
        self._retry_at = 0.0  # when to call the factory again that failed, only to count places
        self._suspects = 0  # calls that wait to run alone, or do
        self._alone = False

    async def run(self, job: Job[Any, Any], args: list[Any], kwargs: dict[str, Any], wait: Wait) -> Any:
        """Raises what the function raises, ChildDied when it ends its process, or Snooze when there is no executor for it."""
        try:
            return await self._run(job, args, kwargs, wait, alone=False)
        except _Shared:
            return await self._run(job, args, kwargs, wait, alone=True)

    async def _run(
        self, job: Job[Any, Any], args: list[Any], kwargs: dict[str, Any], wait: Wait, *, alone: bool
    ) -> Any:
        await self._enter(alone)
        try:
            executor = self._made()
            try:
                _check_unbroken(executor)
                future = submit(executor, job, args, kwargs)
            except BrokenExecutor as error:  # it broke before this call: nothing of it has run
                raise self._broke(job, executor, error, culprit=False, again=not alone) from None
            return await self._ended(job, executor, future, wait)
        finally:
            self._leave(alone)

    async def _ended(self, job: Job[Any, Any], executor: Executor, future: Future[Any], wait: Wait) -> Any:
        self._inside.add(future)
        self._waited_for.add(future)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _in_loop(loop, self._over, done))
        try:
            return opened(await wait(_awaited(future, loop)))
        except ClusterAway as error:
            raise self._went_away(job, error) from None
        except BrokenExecutor as error:
            alone = self._waited_for == {future} and not self._left_behind
            raise self._broke(job, executor, error, culprit=alone, again=not alone) from None
        finally:
            self._waited_for.discard(future)
            if not future.done():
                self._left_behind.add(future)

    def _over(self, future: Future[Any]) -> None:
        self._inside.discard(future)
        self._left_behind.discard(future)
        self._changed.set()

    # -- places ---------------------------------------------------------------------------------------------------------

    @property
    def places(self) -> int | None:
        """How many calls run at once; None when the executor does not say, or when there is none: its jobs then fail with the reason."""
        if self._executor is None and elapsed() < self._retry_at:
            return None
        try:
            executor = self._made()
            places = (
                executor.places if isinstance(executor, ClusterExecutor) else getattr(executor, "_max_workers", None)
            )
        except KeyboardInterrupt:
            raise
        except BaseException:  # of the user's code: it must not keep jobs of other kinds from being claimed
            return None
        return places if isinstance(places, int) else None

    async def _enter(self, alone: bool) -> None:
        self._suspects += alone
        try:
            while not self._free(alone):
                self._changed.clear()
                await self._changed.wait()
            self._alone = alone
        except BaseException:
            self._suspects -= alone
            raise

    def _free(self, alone: bool) -> bool:
        if self._alone:
            return False
        if alone:
            return len(self._inside) == len(self._left_behind)
        places = self.places
        if (
            places
            and len(self._left_behind) >= places
            and self._owned
            and not isinstance(self._executor, ClusterExecutor)
        ):
            self._replace()  # every place is taken by an abandoned call
        return not self._suspects and (places is None or len(self._inside) < places)

    def _leave(self, alone: bool) -> None:
        if alone:
            self._suspects -= 1
            self._alone = False
        self._changed.set()

    # -- broken executors -----------------------------------------------------------------------------------------------

    def _broke(
        self, job: Job[Any, Any], executor: Executor, error: BrokenExecutor, *, culprit: bool, again: bool
    ) -> BaseException:
        """What the call is to end with. The first of those inside emits the event and has the pool made anew."""
        if self._closed:
            return asyncio.CancelledError()  # we ended it ourselves
        if executor is self._executor:
            self._events.emit(ExecutorBroken(job.kind, describe(error), self._owned))
            if self._owned:
                self._replace()
        if self._owned and culprit:
            return ChildDied("its process died; it was killed, ran out of memory, or exited")
        return _Shared() if self._owned and again else Snooze(UNREPLACEABLE_PAUSE)

    def _went_away(self, job: Job[Any, Any], error: ClusterAway) -> BaseException:
        if self._closed:
            return asyncio.CancelledError()
        self._events.emit(ExecutorBroken(job.kind, describe(error), replaced=False))
        return Snooze(AWAY_PAUSE)

    def _replace(self) -> None:
        """The next call makes a new one."""
        self.end()
        self._executor = None
        self._inside.clear()
        self._left_behind.clear()

    def _made(self) -> Executor:
        """Raises what the factory raises."""
        if self._executor is None:
            assert not isinstance(self._source, Executor)
            self._retry_at = elapsed() + FACTORY_PAUSE
            made = self._source()
            if not isinstance(made, Executor):
                raise wrong("executor", made, "a factory of a concurrent.futures.Executor")
            self._executor = made
        if isinstance(self._executor, ClusterExecutor) and self._watched is not self._executor:
            self._watched, loop = self._executor, asyncio.get_running_loop()
            self._executor.watch(lambda: _in_loop(loop, self._places_changed))
        return self._executor

    def _places_changed(self) -> None:
        self._changed.set()
        self._on_places()

    def close(self) -> None:
        self._closed = True
        if self._owned:
            self.end()

    def end(self) -> None:
        if self._executor is None:
            return
        processes = _processes(self._executor)
        with suppress(Exception):  # an executor of another library's
            self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(Exception):  # it has ended already
                process.kill()


class _Shared(Exception):
    """The pool broke with several calls inside."""


def _awaited(call: Future[Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    """As `asyncio.wrap_future`, which never ends after a StopIteration, and ends the process after a KeyboardInterrupt."""
    waiter: asyncio.Future[Any] = loop.create_future()

    def ended() -> None:
        if call.cancelled():
            waiter.cancel()
        elif (error := call.exception()) is not None:
            settle(waiter, None, error)
        else:
            settle(waiter, call.result(), None)

    call.add_done_callback(lambda _: _in_loop(loop, ended))
    waiter.add_done_callback(lambda done: done.cancelled() and call.cancel())
    return waiter


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing waits for the result
        loop.call_soon_threadsafe(function, *args)
