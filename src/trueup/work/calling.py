"""Calls users' functions, for jobs, rows and scans: on the event loop, in a thread, or on an executor, with a timeout.

The call ends with whatever the function raises, `BaseException`s included; `is_own_ending` names the two exceptions to this rule.
Cancelling a coroutine is a request. A thread, or a call in another process, cannot be cancelled: it is left behind after a timeout.
When `patient` says so, it is waited for, because its job or row must not be released while it still runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Protocol, TypeVar

from trueup.clock import deadline, elapsed
from trueup.events import Events
from trueup.jobs.definition import Job
from trueup.jobs.failure import UnreadableError, can_be_told
from trueup.jobs.job import HandlerCall
from trueup.jobs.middleware import Middlewares
from trueup.jobs.outcome import JobTimeout
from trueup.work.executors.pools import Pools
from trueup.work.threads import LINEAGE, Threads, end_in_a_fork

T = TypeVar("T")
_NOT_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType, asyncio.Future)
Patient = Callable[[], bool]
Hook = Callable[[HandlerCall], AbstractAsyncContextManager[Any]]


def never() -> bool:
    return False


class Around(Protocol):
    """A hook around every call of a user's function in this process, in the function's thread and within its timeout: a framework
    uses it to care for its connections. Middleware belongs to an App, stays on the loop, and sees how a call ended, a timeout included."""

    def in_thread(self) -> AbstractContextManager[None]: ...
    def on_loop(self) -> AbstractAsyncContextManager[None]: ...


AROUND: list[Around] = []  # the last one is the innermost


def _in_thread(around: Around, function: Callable[[], T]) -> T:
    with around.in_thread():
        return function()


async def _on_loop(around: Around, function: Callable[[], Awaitable[T]]) -> T:
    async with around.on_loop():
        return await function()


async def _inside(hook: Hook, described: HandlerCall, call: Callable[[], Awaitable[T]]) -> T:
    """Call inside a hook. Raises the error of the call even if the hook swallows it."""
    failed: list[BaseException] = []
    try:
        async with hook(described):
            try:
                return await call()
            except BaseException as error:
                failed.append(error)
                raise
        raise failed[0]
    finally:
        failed.clear()  # its frames hold this one, which would be a cycle


class About(Protocol):
    """What a handler is called for: a job, a row or an item of a scan."""

    def handler_call(self) -> HandlerCall: ...


class Caller:
    """Calls the functions of one worker or reconciler. `close` ends its idle threads and the executors that it made."""

    def __init__(self, events: Events, middlewares: Middlewares) -> None:
        self._around = middlewares.handler
        self._threads = Threads()
        self.pools = Pools(events)

    @property
    def threads_busy(self) -> int:
        """Threads inside a function, those left behind included."""
        return self._threads.busy

    def call(
        self,
        function: Callable[[], Any],
        *,
        is_async: bool,
        timeout: timedelta | None,
        patient: Patient = never,
        about: About | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Returns the function's result. Raises JobTimeout, or the function's error. With `about`, the call is inside middleware, which
        may raise, too."""
        call = partial(self._timed, function, is_async, timeout, patient)
        return self.surrounded(about.handler_call if about is not None else None, call)

    async def surrounded(self, describe: Callable[[], HandlerCall] | None, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call inside middleware. `describe` is called only if there is any.

        Raises a plain error in place of an exception that raises itself when it is examined.
        """
        try:
            if describe is not None and self._around:
                described = describe()
                for hook in reversed(self._around):
                    call = partial(_inside, hook, described, call)
            return await call()
        except BaseException as error:
            if can_be_told(error):
                raise
            unreadable = UnreadableError.of(error)
        raise unreadable  # outside, or the error would be its context

    async def _timed(
        self, function: Callable[[], Any], is_async: bool, timeout: timedelta | None, patient: Patient
    ) -> Any:
        forks = LINEAGE.forks
        token = None if timeout is None else deadline.set(elapsed() + timeout.total_seconds())
        try:
            for around in reversed(AROUND):
                function = partial(_on_loop if is_async else _in_thread, around, function)
            if is_async:
                return _has_run(await (function() if timeout is None else within(timeout, function())))
            thread = self._threads.run(partial(copy_context().run, function))
            return _has_run(await within(timeout, outlasting(thread, patient)))
        finally:
            end_in_a_fork(forks)
            if token is not None:
                deadline.reset(token)

    async def call_elsewhere(
        self,
        job: Job[Any, Any],
        args: list[Any],
        kwargs: dict[str, Any],
        patient: Patient = never,
        about: About | None = None,
    ) -> Any:
        """The same on the job's executor. Waiting for a place there does not count towards the timeout."""
        pool = self.pools.of(job)
        call = partial(pool.run, job, args, kwargs, lambda running: within(job.timeout, outlasting(running, patient)))
        return _has_run(await self.surrounded(about.handler_call if about is not None else None, call))

    def close(self) -> None:
        self._threads.close()
        self.pools.close()


def _has_run(result: T) -> T:
    """Raises TypeError for a coroutine or a generator: the function's body has not run, because nothing awaits or iterates it."""
    kind = type(result)
    if not issubclass(kind, _NOT_RUN):
        return result
    if isinstance(result, CoroutineType | GeneratorType):
        result.close()  # or Python warns that it was never awaited
    raise TypeError(
        f"the handler returned a {kind.__name__}, which nothing runs: make it an async def that awaits, "
        "and the decorators around it, too"
    )


async def within(timeout: timedelta | None, call: Awaitable[T]) -> T:
    """Raises JobTimeout when it takes longer. A TimeoutError of the function's own stays what it is."""
    if timeout is None:
        return await call
    scope = asyncio.timeout(timeout.total_seconds())
    try:
        async with scope:
            return await call
    except TimeoutError:
        if scope.expired():
            raise JobTimeout(timeout) from None
        raise


async def outlasting(call: asyncio.Future[T], patient: Patient) -> T:
    """Wait for a call that cannot be cancelled. After a cancellation it goes on waiting if `patient` says so."""
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        if call.cancelled() or not patient():
            call.cancel()  # its result is not used
            raise
    return await call


def is_own_ending(error: BaseException, *, cancelled_by_us: bool) -> bool:
    """Whether the function ended with this error by itself: not by Ctrl-C, and not by a cancellation that trueup asked for."""
    if isinstance(error, asyncio.CancelledError):
        if not error.args:
            error.args = ("the handler's task was cancelled from inside the handler",)
        return not cancelled_by_us
    return not isinstance(error, KeyboardInterrupt)
