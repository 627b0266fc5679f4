"""What the servers here have in common: a program on loopback, with ports and a directory of its own, that tests can end, freeze
and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

LOOPBACK = "127.0.0.1"
START_WITHIN = 30  # seconds; one or two at most, but the machine may be busy
STOP_WITHIN = 10


class ServerError(RuntimeError):
    """The server cannot be had, or did not start or answer."""


class Server(ABC):
    """Serves from entering its `with` block until leaving it, always on the same port. Its directory lasts as long."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: list[socket.socket] = []

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """What is started, each time. Raises ServerError when the program is not there."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it serves. May raise OSError, which means that it does not yet."""

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix=f"{self.name.lower()}-", ignore_cleanup_errors=True)
        self.directory = Path(self._directory.name)
        self.port = self._reserve()
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
        for reserved in self._reserved:
            reserved.close()
        self._directory.cleanup()

    def _reserve(self) -> int:
        """A port that is not given to anything else while this object lives, also while the server is down."""
        reserved = socket.socket()
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((LOOPBACK, 0))
        self._reserved.append(reserved)
        port: int = reserved.getsockname()[1]
        return port

    def start(self) -> None:
        """Return when it serves. Harmless when it runs. Raises ServerError with what it said when it does not start."""
        if self._process is not None and self._process.poll() is None:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(self._command()),
                env=dict(self._environment()),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for the one who uses it, and who ends it
            )
        deadline = time.monotonic() + START_WITHIN
        while not self._serves(self._process):
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} does not answer after {START_WITHIN} s:\n{self.said}")
            time.sleep(0.01)

    def _serves(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise ServerError(f"{self.name} did not start:\n{self.said}")
        try:
            return self._answers()
        except OSError:
            return False

    def stop(self) -> None:
        """Connections are refused until it is started again. Harmless when stopped."""
        self.kill()

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
    def stopped(self) -> Iterator[None]:
        """Down until the block is left."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept what is sent and answer nothing, until the block is left."""
        process = self._process
        assert process is not None
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
        return self.directory / "log"
