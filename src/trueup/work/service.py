"""The shape of everything that loops: `run_once` does one pass and is what tests call; the loop around it is here, once.

A pass that fails because the database is away is repeated with growing, jittered pauses; any other error is an event, and
the loop goes on at its usual pace. `wake` cuts the pause short. `stop` lets a pass under way end. Only `kill` ends the loop by
cancelling its task: when anything else does (a handler that cancels every task it finds), or when a user's code raises something that
is no Exception, that is an event, and the loop begins again. Otherwise its worker would renew its lease and never do this part of its
work again.
"""

from __future__ import annotations

import asyncio
import random

from trueup.clock import elapsed
from trueup.errors import TrueupError
from trueup.events import Events, ServiceFailed
from trueup.store.db.connect import RETRYABLE, TIMED_OUT, is_away
from trueup.texts import describe, type_name

SAY_EVERY = 60.0  # seconds between reports of a loop that keeps failing, once it has failed often
RESTART_AFTER = 0.5  # seconds after its task has ended
MAX_PAUSE = 5.0  # seconds between tries while the database is away


class Service:
    """Subclasses say what one pass does and how long to pause after it."""

    name = "service"

    def __init__(self, events: Events) -> None:
        self.events = events
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._failures = 0  # in a row
        self._said_at = 0.0

    async def run_once(self) -> float:
        """Make one pass. Returns the seconds until the next one."""
        raise NotImplementedError

    def wake(self) -> None:
        self._wake.set()

    def start(self) -> None:
        """Does nothing when it runs already."""
        if self._task is None:
            self._stop.clear()
            self._begin()

    async def stop(self) -> None:
        """Returns when the loop has ended. May be called twice, and before start."""
        self._stop.set()
        self._wake.set()
        if self._restart is not None:
            self._restart.cancel()
        task = self._task
        if task is not None:
            await asyncio.wait({task})
            self._task = None

    async def kill(self) -> None:
        """End the loop without waiting for its pass."""
        if self._task is not None:
            self._task.cancel()
        await self.stop()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=f"trueup {self.name}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = _cancelled() if task.cancelled() else task.exception()
        if error is None or self._stop.is_set() or isinstance(error, KeyboardInterrupt | SystemExit):
            return
        self._failed(error)
        # Later: an event loop that is being closed cancels every task, and must not get a new one.
        self._restart = task.get_loop().call_later(RESTART_AFTER, self._begin)

    async def _loop(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause = await self.run_once()
                failures = self._failures = 0
            except RETRYABLE as error:
                failures += 1
                if not (is_away(error) or isinstance(error, TIMED_OUT)):  # the connection says so of these
                    self._failed(error)
                # A wake-up does not bring the database back, so only a stop cuts this pause short.
                await _wait(self._stop, min(MAX_PAUSE, 0.05 * 2**failures) * random.uniform(0.5, 1))  # noqa: S311
            except Exception as error:
                self._failed(error)
                await _wait(self._stop, 1.0)
            else:
                if pause > 0:
                    await _wait(self._wake, pause)
                else:
                    await asyncio.sleep(0)

    def _failed(self, error: BaseException) -> None:
        """Report the first failure, and later ones more and more rarely, so that a failing loop does not fill the log."""
        self._failures += 1
        now = elapsed()
        if self._failures & (self._failures - 1) == 0 or now >= self._said_at + SAY_EVERY:
            self._said_at = now
            failed = ServiceFailed(self.name, type_name(error), describe(error), self._failures)
            self.events.emit(failed.because(error))


def _cancelled() -> TrueupError:
    return TrueupError("its task was cancelled by something else in this process, perhaps by a handler")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event is set, or until the timeout."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def jittered(seconds: float) -> float:
    """Up to a tenth more or less, so that a fleet started together does not act together."""
    return seconds * random.uniform(0.9, 1.1)  # noqa: S311
