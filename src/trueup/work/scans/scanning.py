"""One pass over a scan, by the instance that has its lease: the generator is drawn on, its items are handled, progress is kept.

The generator lives in one task from its first step to its closing, because what it has open (a timeout, a client's scope)
may be left only by the task that entered it. Each item is a task too; as many as `concurrency` are inside the handler, and
no more than twice as many are in hand. The pass itself only waits, and keeps what has been handled: every second, or sooner
when there is much of it. A database that does not answer then is asked again later; the lease says how long that may go on.

A pass ends when the generator has ended and everything it yielded is handled. `stop` stops drawing on the generator and lets
what is inside the handler end; `interrupt` cancels that, too. Losing the lease cancels the pass, and nothing is kept any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from trueup.clock import elapsed
from trueup.events import Events, ScanItemFailed
from trueup.jobs.failure import clean, describe, taken_frames, type_name
from trueup.reconcile.progress import Group, Point, Progress
from trueup.reconcile.scan import Scan
from trueup.store.db.connect import RETRYABLE
from trueup.work.calling import Caller, is_own_ending

SAVE_EVERY = 1.0  # seconds
SAVE_AT = 100  # items handled and not kept yet
LAST_WORD = 3.0  # seconds for what is cancelled to end; a worker that stops waits a little longer than that
MAX_SHOWN = 300  # characters of an item, in an event

Save = Callable[[Point], Awaitable[None]]


class Pass:
    """Used once. `error` is what the generator raised; `complete` says that it came to its end, whatever became of the items."""

    def __init__(self, scan: Scan[Any], caller: Caller, events: Events) -> None:
        self._scan = scan
        self._caller = caller
        self._events = events
        self._handler, self._is_async = scan.handler, scan.is_async
        self._places = asyncio.Semaphore(scan.concurrency)
        self._room = asyncio.Semaphore(2 * scan.concurrency)
        self._changed = asyncio.Event()
        self._generator: asyncio.Task[None] | None = None
        self._items: set[asyncio.Task[None]] = set()
        self.eased = False
        self._until: float | None = None
        self._ending = False  # what still runs was cancelled, and nothing of it counts any more
        self._held: Callable[[], bool] = lambda: True
        self._save_at = elapsed() + SAVE_EVERY
        self.error: BaseException | None = None
        self.complete = False

    def stop(self) -> None:
        """Stop drawing on the generator; what is inside the handler may end. May be called at any time, and twice."""
        self.eased = True
        if self._generator is not None:
            self._generator.cancel()

    def interrupt(self) -> None:
        """Cancel what is inside the handler, too. What ignores that is left behind after a while."""
        self.stop()
        if self._until is None:
            self._until = elapsed() + LAST_WORD
        for item in self._items:
            item.cancel()
        self._changed.set()

    def _interrupted(self) -> bool:
        return self._until is not None

    async def run(self, cursor: Any, progress: Progress, save: Save, held: Callable[[], bool]) -> None:
        """Returns when nothing of it runs any more. Raises what `save` raises, unless a later try may help."""
        if self.eased:
            return
        self._held = held
        self._generator = asyncio.create_task(self._draw(cursor, progress), name=f"trueup scan {self._scan.name}")
        self._generator.add_done_callback(lambda _: self._changed.set())
        try:
            while self._under_way():
                await self._wait(progress)
                if self._worth_keeping(progress):
                    await self._save(progress, save)
        finally:
            await self._cut()

    def _under_way(self) -> bool:
        assert self._generator is not None
        if self._until is not None and elapsed() >= self._until:
            return False
        return bool(self._items) or not self._generator.done()

    def _worth_keeping(self, progress: Progress) -> bool:
        """Not at the very end: the last cursor may be the beginning, from which no run should continue."""
        at_the_end = self.complete and progress.settled
        return progress.moved and not at_the_end and (progress.beyond >= SAVE_AT or elapsed() >= self._save_at)

    async def _wait(self, progress: Progress) -> None:
        """Until something was handled or has ended, or it is time to keep what was handled before."""
        ends = [self._save_at] if progress.moved else []
        if self._until is not None:
            ends.append(self._until)
        try:
            async with asyncio.timeout(max(0.0, min(ends) - elapsed()) if ends else None):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _save(self, progress: Progress, save: Save) -> None:
        point = progress.point
        try:
            await save(point)
        except RETRYABLE:
            progress.beyond = 0  # the next try is due by the clock, not with each further item
        else:
            progress.kept(point)
        self._save_at = elapsed() + SAVE_EVERY

    async def _cut(self) -> None:
        """No item runs on beside the next holder; a handler that ignores its cancellation is abandoned."""
        assert self._generator is not None
        self._ending = True
        running = {task for task in (self._generator, *self._items) if not task.done()}
        for task in running:
            task.cancel()
        left = LAST_WORD if self._until is None else self._until - elapsed()
        if running and left > 0:
            await asyncio.wait(running, timeout=left)

    # -- the generator --------------------------------------------------------------------------------------------------

    async def _draw(self, cursor: Any, progress: Progress) -> None:
        try:
            async with aclosing(self._scan(cursor)) as source:
                await self._room.acquire()
                async for yielded in source:
                    if self.eased:  # cancelled, and it still yielded
                        return
                    item, reached = self._scan.pair(yielded)
                    self._begin(item, progress.found(reached), progress)
                    del yielded, item
                    await self._room.acquire()
        except BaseException as error:
            if not is_own_ending(error, cancelled_by_us=self.eased or self._ending):
                raise
            self.error = error
        else:
            progress.ended()
            self.complete = True

    # -- the items ------------------------------------------------------------------------------------------------------

    def _begin(self, item: Any, group: Group, progress: Progress) -> None:
        task = asyncio.create_task(self._one(item, group, progress), name=f"trueup scan item {self._scan.name}")
        self._items.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._items.discard(task)
        self._room.release()
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:  # ours: the handler's are caught
            self.error = self.error or error
            self.complete = False

    async def _one(self, item: Any, group: Group, progress: Progress) -> None:
        async with self._places:
            # A process that was stopped for a while wakes up with items in hand that are not its own any more.
            if self.eased or not self._held():
                return
            failed = await self._fails(item)
        progress.handled(group, failed=failed)

    async def _fails(self, item: Any) -> bool:
        try:
            await self._caller.call(
                partial(self._handler, item),
                is_async=self._is_async,
                timeout=self._scan.timeout,
                patient=self._interrupted,
                about=self._scan,
            )
        except BaseException as error:
            if not is_own_ending(error, cancelled_by_us=self._interrupted() or self._ending):
                raise
            self._failed(item, error)
            return True
        return False

    def _failed(self, item: Any, error: BaseException) -> None:
        failed = ScanItemFailed(self._scan.name, _shown(item), type_name(error), describe(error))
        self._events.emit(failed.because(error, taken_frames(error)))


def _shown(item: Any) -> str:
    try:
        return clean(repr(item), MAX_SHOWN)
    except Exception as broken:
        return f"<{type(item).__name__} that cannot be shown: {type(broken).__name__}>"
