"""A server whose clock the test sets, while sessions are open and statements run."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
import pytest

from tests.support.database import TestServer
from tests.support.faketime import remove_leftovers, shift_clock, steered_env

RIGHT = 0  # seconds


class JumpingServer(TestServer):
    """Its clock is right to a second or two until `jump` is called, and wrong by so much from then on, for every session at once."""

    __test__ = False

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, **settings)
        self._steering = self.cluster.directory / "clock"  # where also a server that runs as another user can read it

    def __enter__(self) -> Self:
        self.cluster.create()
        with pytest.MonkeyPatch.context() as during_start:
            for name, value in steered_env(self._steering).items():
                during_start.setenv(name, value)
            self.cluster.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        remove_leftovers()

    def jump(self, seconds: int) -> float:
        """Set the clock to be wrong by so many seconds. Returns by how many it jumped, as a session sees it."""
        with psycopg.connect(self.cluster.url(), autocommit=True) as connection:
            before = _clock(connection)
            shift_clock(self._steering, round(seconds - (before - time.time())))
            return _clock(connection) - before


def _clock(connection: psycopg.Connection) -> float:
    row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    assert row is not None
    return float(row[0])
