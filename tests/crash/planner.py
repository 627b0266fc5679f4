"""A worker process with a schedule for every second, or for `PLANNER_CRON`: `python -m tests.crash.planner`."""

from __future__ import annotations

import asyncio
import os
import signal

from trueup import App, Tick

EVERY_SECOND = "* * * * * *"


def declare(app: App) -> None:
    @app.cron(os.environ.get("PLANNER_CRON", EVERY_SECOND), overlap="allow")
    async def secondly(tick: Tick) -> None: ...


async def work() -> None:
    app = App()
    declare(app)
    worker = app.worker()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.request_stop)
    await worker.run()
    await app.close()


if __name__ == "__main__":
    asyncio.run(work())
