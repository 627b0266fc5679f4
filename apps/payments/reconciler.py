"""python -m apps.payments.reconciler: one replica. It listens on no port; start as many as you like."""

from __future__ import annotations

import asyncio
import signal
import sys

from trueup import ConfigError, TrueupError
from trueup.observe.lines import configure_logging

from .config import Config
from .service import Service, build


def main() -> int:
    """0 when it was asked to stop, 1 when something failed, 2 when it is not configured."""
    try:
        service = build(Config.from_environment())
        for logger_name in ("trueup", "payments"):
            configure_logging(service.app.settings, logger_name=logger_name)
        return asyncio.run(reconcile(service))
    except ConfigError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 2
    except TrueupError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 1


async def reconcile(service: Service) -> int:
    await service.prepare()
    worker = service.app.worker()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_stop)
    service.tell("Reconciler started")
    try:
        await worker.run()
    finally:
        await service.close()
        service.tell("Reconciler stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
