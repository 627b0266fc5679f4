"""The API as a process: the sweeps start once it listens, and stop before it does."""

from __future__ import annotations

import socket

from trueup.web import serving
from trueup.web.guard import Rules

from .api import make_api
from .service import Service


class Server(serving.Server):
    def __init__(self, service: Service, rules: Rules, host: str, port: int, *, reconcile: bool) -> None:
        super().__init__("wallpapers", make_api(service), service.down, rules, host, port)
        self._service = service
        self._reconcile = reconcile

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._reconcile and self.started:
            await self._service.reconciliation.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.reconciliation.stop()
        await super().shutdown(sockets)
