"""The API as a process: the sweeps start once it listens, and stop before it does."""

from __future__ import annotations

import socket

import uvicorn

from trueup.web.guard import Guard, Rules

from .api import make_api
from .service import Service


class Server(uvicorn.Server):
    def __init__(self, service: Service, rules: Rules, host: str, port: int, *, reconcile: bool) -> None:
        guarded = Guard(make_api(service), rules)
        super().__init__(uvicorn.Config(guarded, host=host, port=port, log_config=None, server_header=False))
        self._service = service
        self._reconcile = reconcile

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._reconcile and self.started:
            await self._service.reconciliation.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.reconciliation.stop()
        await super().shutdown(sockets)
