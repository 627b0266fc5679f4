"""A worker process that publishes: `python -m tests.integrations.publishing`, with the server's URL in BROKER."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.integrations.broker import ORDERS
from trueup import App, Retry
from trueup.integrations.nats import Nats
from trueup.observe.lines import configure_logging

PATIENT = Retry(max_attempts=100, first="100ms", factor=1)


def declare(app: App, url: str) -> Nats:
    return Nats(app, url, stream=ORDERS, retry=PATIENT, timeout="2s")


async def work() -> None:
    app = App()
    configure_logging(app.settings)
    declare(app, os.environ["BROKER"])
    worker = app.worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.request_stop)
    try:
        await worker.run()
    finally:
        await app.close()


if __name__ == "__main__":
    asyncio.run(work())
