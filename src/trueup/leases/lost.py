"""How a holder learns that it has lost its lease."""

from __future__ import annotations

import asyncio
import threading


class LostSignal:
    """Set once when the lease is gone. Works from coroutines (`await ctx.lost.wait()`) and threads (`ctx.lost.wait_sync(1)`)."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._waiters: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        return self._flag.is_set()

    def set(self) -> None:
        """May be called from any thread."""
        self._flag.set()
        for waiter in list(self._waiters):
            try:
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)
            except RuntimeError:  # its loop is closed, so nothing waits
                continue

    async def wait(self) -> None:
        if self._flag.is_set():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            if not self._flag.is_set():  # set by another thread before it could see the waiter
                await waiter
        finally:
            self._waiters.discard(waiter)

    def wait_sync(self, timeout: float | None = None) -> bool:
        return self._flag.wait(timeout)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
