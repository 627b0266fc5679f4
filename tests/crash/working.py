"""How a process of a fleet works: until it is asked to stop, with its events in its journal."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.journal import Journal
from trueup import App, DatabaseUnavailable
from trueup.events import Event
from trueup.work.worker import Worker

RESTARTS = 50  # while the server is away

_asked_to_stop = False


async def work(app: App, worker: Worker, journal: Journal, *told: type[Event]) -> None:
    """Only these kinds of event are written down, if any are named."""

    def stop() -> None:
        global _asked_to_stop
        _asked_to_stop = True
        worker.request_stop()

    app.events.subscribe(journal, *told)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, say_where)
    faulthandler.register(signal.SIGUSR2)  # also when the loop is blocked
    try:
        await worker.run()
    finally:
        await app.close()


def say_where() -> None:
    """Where each task is, for a process that does not end."""
    for task in asyncio.all_tasks():
        task.print_stack()


def restarted(once: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it again when it ends because the server is away, as whatever looks after the process would; but not when it was asked
    to stop."""
    for _ in range(RESTARTS):
        try:
            return asyncio.run(once())
        except DatabaseUnavailable:
            if _asked_to_stop:
                return None
            time.sleep(0.2)
        finally:
            signal.signal(
                signal.SIGUSR1, signal.SIG_IGN
            )  # a question to a process that ends slowly must not be its end
    return None
