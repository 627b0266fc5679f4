"""What the applications' services have in common: a database of their own, a line that says where they listen, an orderly end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn

from trueup import App
from trueup.web.guard import Guard, rules_for

SHARED = Path(".trueup")


def own_app(name: str, **settings: Any) -> App:
    """An App. Its embedded PostgreSQL, if it has one, is this application's alone, unless a directory is configured.

    In a database that two applications share, each would take the other's schedules for ones that were removed from its code.
    """
    app = App(**settings)
    if app.settings.data_dir.name == SHARED.name:
        app = App(**settings, data_dir=app.settings.data_dir / name)
    return app


class _Server(uvicorn.Server):
    """`started_at` is called with the address as soon as it answers there."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[str], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            self._listening(f"http://{host}:{port}")


async def serve(api: Callable[..., Awaitable[None]] | Any, host: str, port: int, log: logging.Logger) -> int:
    """Until SIGTERM or SIGINT. 0 when it ended in order, 1 when it could not listen there."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn sends itself again what it has obeyed, once it has stopped
    config = uvicorn.Config(Guard(api, rules_for(host)), host=host, port=port, log_config=None, server_header=False)
    server = _Server(config, lambda url: log.info("Listening", extra={"url": url}))
    try:
        await server.serve()
    except SystemExit:  # uvicorn's, when it cannot listen
        log.error("Cannot listen", extra={"host": host, "port": port})
        return 1
    log.info("Stopped")
    return 0
