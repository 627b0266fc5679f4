"""How a process of a fleet works: until it is asked to stop, with its events in its journal."""

from __future__ import annotations

import asyncio
import signal

from tests.support.journal import Journal
from trueup import App
from trueup.events import Event
from trueup.work.worker import Worker


async def work(app: App, worker: Worker, journal: Journal, *told: type[Event]) -> None:
    """Only these kinds of event are written down, if any are named."""
    app.events.subscribe(journal, *told)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.request_stop)
    try:
        await worker.run()
    finally:
        await app.close()
