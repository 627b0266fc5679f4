"""How whoever holds something learns that it is gone."""

from __future__ import annotations

import asyncio
import threading


class Lost:
    """Set once when the lease is gone. Works from coroutines (`await ctx.lost.wait()`) and threads (`ctx.lost.wait_sync(1)`)."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._waiters: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        return self._flag.is_set()

    def set(self) -> None:
        """Called on the worker's event loop."""
        self._flag.set()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        if self._flag.is_set():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def wait_sync(self, timeout: float | None = None) -> bool:
        return self._flag.wait(timeout)
