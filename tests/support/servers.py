"""PostgreSQL in every version and build that the tests run on, shared by all tests of a process."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.support.database import TestServer
from tests.support.debian_server import DebianServer
from tests.support.majors import MajorServer
from tests.support.memory import in_memory

NEWEST, DEBIAN = "newest", "debian 15"


class Servers:
    """Each is started when it is first asked for, and runs until the session ends."""

    def __init__(self, newest: TestServer) -> None:
        self._started: dict[str, TestServer] = {NEWEST: newest}
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> TestServer:
        return self.debian if name == DEBIAN else self._get(name)

    @property
    def debian(self) -> DebianServer:
        server = self._get(DEBIAN)
        assert isinstance(server, DebianServer)
        return server

    def _get(self, name: str) -> TestServer:
        if name not in self._started:
            directory = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="trueup-pg-", dir=in_memory()))
            self._started[name] = self._stack.enter_context(self._server(name, Path(directory) / "pg"))
        return self._started[name]

    def _server(self, name: str, directory: Path) -> TestServer:
        if name == DEBIAN:
            return DebianServer(directory, wal_level="logical")
        return MajorServer(directory, int(name))

    def close(self) -> None:
        self._stack.close()
