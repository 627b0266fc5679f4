"""Ends a run that is cancelled: the run is stopped in order, and interrupted only if that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

LAST_WORD = 5.0  # seconds for handlers to end once they are cancelled, and for the last writes

T = TypeVar("T")


async def orderly(
    task: asyncio.Task[T], stop: Callable[[], None], interrupt: Callable[[], None], drain_for: timedelta
) -> T:
    """Wait for the task and return its result. If this is cancelled, it stops the task and waits for its end first."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        try:
            await asyncio.wait({task}, timeout=drain_for.total_seconds())
        finally:  # also when cancelled once more
            if not task.done():
                interrupt()
                await asyncio.wait({task}, timeout=LAST_WORD)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=LAST_WORD)
            if task.done() and not task.cancelled():
                task.exception()  # its error no longer matters
        raise
