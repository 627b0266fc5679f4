"""python -m apps.payments.reconciler: one replica. It listens on no port; start as many as you like."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trueup.web.service import Main

from .service import Service, build_configured

MAIN = Main("payments")


def main() -> int:
    return MAIN.run(lambda: MAIN.work(build_configured, around=_told))


@asynccontextmanager
async def _told(service: Service) -> AsyncIterator[None]:
    service.tell("Reconciler started")
    try:
        yield
    finally:
        service.tell("Reconciler stopped")


if __name__ == "__main__":
    sys.exit(main())
