"""Threads for sync handlers. They are daemons, and one that hangs is left behind without taking a place.

`concurrent.futures` joins its threads at exit, so one handler that never returns would keep the process for ever; and a
timed-out call would keep its slot. Here the number of threads is bounded by who calls (the runners), not by the pool.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from trueup.jobs.failure import UnreadableError, can_be_told


class Lineage:
    """Tells a process from its forked children without a system call."""

    forks = 0  # how many forks this process is away from the one that imported this module

    def note_fork(self) -> None:
        self.forks += 1


LINEAGE = Lineage()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LINEAGE.note_fork)

Call = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Threads:
    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Call | None]] = []
        self._lock = threading.Lock()
        self._busy = 0
        self._closed = False

    @property
    def busy(self) -> int:
        """How many calls are under way, with those left behind."""
        return self._busy

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call it in a thread. Cancelling the future does not end the call; its result is then dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._busy += 1
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="trueup handler", daemon=True).start()
        inbox.put((function, loop, future))
        return future

    def close(self) -> None:
        """End idle threads now, and busy ones when their call ends."""
        with self._lock:
            self._closed = True
            for inbox in self._idle:
                inbox.put(None)
            self._idle.clear()

    def _work(self, inbox: SimpleQueue[Call | None]) -> None:
        while (call := inbox.get()) is not None:
            function, loop, future = call
            forks = LINEAGE.forks
            try:
                result, error = function(), None
            except BaseException as raised:
                result, error = None, raised if can_be_told(raised) else UnreadableError.of(raised)
            end_in_a_fork(forks)
            with self._lock:
                self._busy -= 1
                self._idle.append(inbox)
                if self._closed:
                    inbox.put(None)
            try:
                loop.call_soon_threadsafe(settle, future, result, error)
            except RuntimeError:  # the loop is closed: nothing waits for the result
                return
            del call, function, future, result, error


def end_in_a_fork(forks: int) -> None:
    """End this process if it is a child that a handler has forked and that came back from the handler.

    It would go on as a second copy of the worker, on the same connections to the server. `forks`: `LINEAGE.forks` at the call.
    """
    if LINEAGE.forks != forks:
        os._exit(1)


def settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """End the future of a handler's call as the call has ended."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration | GeneratorExit | KeyboardInterrupt):
        # A future refuses the first; the others would end the coroutine that awaits it, or the loop, instead of the job.
        future.set_exception(RuntimeError(f"the handler raised {type(error).__name__}"))
    else:
        future.set_exception(error)
