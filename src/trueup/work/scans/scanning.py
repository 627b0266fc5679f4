"""One pass over a scan, by the worker that has its lease: it runs the generator, handles the items, and stores the progress.

The generator lives in one task from its first step to its closing, because a scope that it has entered (a timeout, a client) may be
left only by the task that entered it. Each item has a task, too: up to `concurrency` handlers run, and at most twice as many items are
in hand. The pass itself only waits, and stores the progress every second, or sooner after many items. If the database does not answer,
it tries again later, as long as the lease lasts.

A pass ends when the generator has ended and all its items are handled. `stop` takes no more items from the generator and lets running
handlers end; `interrupt` cancels them, too. Losing the lease cancels the pass, and nothing more is stored.
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
SAVE_AT = 100  # handled items whose progress is not stored yet
LAST_WORD = 3.0  # seconds for cancelled handlers to end; a worker that stops waits a little longer than that
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
        self._ending = False  # the handlers that still run were cancelled, and their results do not count
        self._held: Callable[[], bool] = lambda: True
        self._save_at = elapsed() + SAVE_EVERY
        self.error: BaseException | None = None
        self.complete = False

    def stop(self) -> None:
        """Take no more items from the generator; running handlers may end. May be called at any time, and twice."""
        self.eased = True
        if self._generator is not None:
            self._generator.cancel()

    def interrupt(self) -> None:
        """Cancel running handlers, too. A handler that ignores its cancellation is left behind after a while."""
        self.stop()
        if self._until is None:
            self._until = elapsed() + LAST_WORD
        for item in self._items:
            item.cancel()
        self._changed.set()

    def _interrupted(self) -> bool:
        return self._until is not None

    async def run(self, cursor: Any, progress: Progress, save: Save, held: Callable[[], bool]) -> None:
        """Returns when no part of the pass runs any more. Raises errors of `save`, unless a later try may help."""
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
        """Whether to store the progress: not at the very end, because the last cursor may be the beginning."""
        at_the_end = self.complete and progress.settled
        return progress.moved and not at_the_end and (progress.beyond >= SAVE_AT or elapsed() >= self._save_at)

    async def _wait(self, progress: Progress) -> None:
        """Wait until an item was handled, a task has ended, or it is time to store the progress."""
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
        """Cancel the handlers, so that no item runs beside the next holder's. A handler that ignores its cancellation is abandoned."""
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
            # After a process was stopped for a while, another worker may have the scan's lease and these items.
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
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        return f"<{type(item).__name__} that cannot be shown: {type(broken).__name__}>"
