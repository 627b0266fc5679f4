"""One worker of the application: `python -m trueup.demo.worker`. Logs as JSON lines, stops in order on SIGTERM."""

from __future__ import annotations

import asyncio
import signal

from trueup.demo import application
from trueup.demo.orphan import end_with_parent
from trueup.observe.lines import configure_logging


async def main() -> None:
    service = application.build()
    for name in ("trueup", "birthdays"):
        configure_logging(service.app.settings, logger_name=name)
    await service.prepare()
    worker = service.app.worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.request_stop)
    try:
        async with service.watching_for_late():
            await worker.run()
    finally:
        await service.close()


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(main())
