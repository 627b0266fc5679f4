"""The demo's environment: a directory of its own with a PostgreSQL and the processes. Nothing else is touched."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import psycopg

from trueup.demo import application
from trueup.demo.fleet import DemoProcess, DemoWorker
from trueup.demo.journal import Journal
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.errors import TrueupError
from trueup.store.db.migrate import Migrator

LEASE = timedelta(seconds=2)  # usually half a minute; so that a takeover can be watched

SETTINGS = {
    "TRUEUP_LEASE_FOR": f"{LEASE.seconds}s",
    "BIRTHDAYS_LEASE_FOR": f"{LEASE.seconds}s",
    "TRUEUP_RESCUE_EVERY": "250ms",
    "TRUEUP_CONCURRENCY": "10",
    "TRUEUP_POOL_SIZE": "5",
    "TRUEUP_DRAIN_FOR": "5s",
    "TRUEUP_LOG_FORMAT": "json",
    "BIRTHDAYS_EVERY": "2s",
    "BIRTHDAYS_PAUSE_FOR": "2s",  # the first pause when the receiver is down; usually half a minute
    "BIRTHDAYS_RETRY_OVER": "30s",  # usually three hours
    "BIRTHDAYS_CONCURRENCY": "20",
    "BIRTHDAYS_WEBHOOK_ALLOW": "127.0.0.1",
}
# Enough for the most workers there may be, and one that starts while its predecessor's are not gone yet.
CONNECTIONS = 200
REPORT_WITHIN = 30.0  # seconds


class StepFailed(Exception):
    """A step of the demo failed; `detail` has the last lines of the log."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(what)
        self.detail = detail


class Stage:
    def __init__(self, workers: int, rate: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="trueup-demo-"))
        # As root without user namespaces PostgreSQL runs as nobody, who has to pass through; what is inside is private.
        self.directory.chmod(0o711)
        self.journal = Journal(self.directory / "receiver.jsonl")
        self._postgres = EmbeddedPostgres(
            self.directory / "postgres", settings={"max_connections": str(CONNECTIONS)}, linger=timedelta(0)
        )
        self._rate = rate
        self._names = ascii_uppercase[:workers]
        self._environment: dict[str, str] = {}
        self._parts: list[DemoProcess] = []
        self.database_url = ""
        self.workers: list[DemoWorker] = []

    @contextmanager
    def database(self) -> Iterator[psycopg.Connection[Any]]:
        """Start the server, and make trueup's tables and our own. Raises TrueupError."""
        self.database_url = self._postgres.acquire()
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            Migrator(connection, "trueup").migrate()
            connection.execute((files("trueup.demo") / "tables.sql").read_bytes())
            self._cast()
            yield connection

    def _cast(self) -> None:
        self.receiver_port = free_port()
        self._environment = environment(
            {
                "TRUEUP_DATABASE_URL": self.database_url,
                "BIRTHDAYS_WEBHOOK_URL": f"http://127.0.0.1:{self.receiver_port}/hook",
                "BIRTHDAYS_RATE": f"{self._rate}/s",
            }
        )
        self.workers = [DemoWorker(name, self._log(f"worker-{name}"), self._environment) for name in self._names]
        self.receiver = self.part("receiver", str(self.receiver_port), str(self.journal.path))
        self._parts += self.workers

    def part(self, name: str, *arguments: str) -> DemoProcess:
        """A process of `demo.processes`; it is not started yet."""
        made = DemoProcess(name, [name, *arguments], self._log(name), self._environment)
        self._parts.append(made)
        return made

    def recovery_report(self, *, to_terminal: bool) -> str:
        """What `trueup recovery` says; nothing, when it says it to the terminal itself. Raises StepFailed when it cannot."""
        app = f"{application.__name__}:app"
        ended = subprocess.run(
            [sys.executable, "-m", "trueup.cli", "recovery", "--app", app],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=None if to_terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=REPORT_WITHIN,
        )
        if ended.returncode not in (0, 1):  # 1: something is behind, which the report says
            raise StepFailed(f"trueup recovery ended with status {ended.returncode}", ended.stderr)
        return (ended.stdout or "").rstrip()

    def clear(self, *, keep: bool) -> None:
        """End every process, and remove the directory unless it is to be kept. May be called at any moment."""
        for part in self._parts:
            part.kill()
        with suppress(TrueupError, TimeoutError, OSError):
            # A server that is still starting may ignore this; it ends when it finds its directory gone.
            self._postgres.stop()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """The environment of the demo's processes: nothing that the user has set for trueup or the application reaches them."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TRUEUP_", "BIRTHDAYS_")) and name != "DATABASE_URL"
    }
    path = os.pathsep.join([*application.paths(), *map(os.path.abspath, sys.path)])  # they have another directory
    return {**inherited, "PYTHONPATH": path, **SETTINGS, **more}


def free_port() -> int:
    """Outside the range that systems give to outgoing connections: while the receiver is down, no other program gets it by chance."""
    while True:
        port = random.randrange(20_000, 32_000)  # noqa: S311 - nothing secret about it
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
