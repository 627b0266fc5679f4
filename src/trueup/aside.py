"""Runs a blocking call in a thread of its own and awaits it. The loop's executor has few threads and is joined at exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def aside(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run the call in a thread. Cancelling the future does not end the call, but drops its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed: nothing waits for the result
            return

    threading.Thread(target=work, name=name, daemon=True).start()
    return future
