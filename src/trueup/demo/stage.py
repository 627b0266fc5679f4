"""Where the demo takes place: a directory of its own, with a PostgreSQL and the processes on it. Nothing else is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import psycopg

from trueup.demo.fleet import Worker
from trueup.embedded.embedded import EmbeddedPostgres
from trueup.errors import TrueupError
from trueup.store.migrate import Migrator

LEASE = timedelta(seconds=3)  # ten times shorter than usual, so that a takeover can be watched
RENEW = timedelta(seconds=1)

SETTINGS = {
    "TRUEUP_LEASE_FOR": f"{LEASE.seconds}s",
    "TRUEUP_RENEW_EVERY": f"{RENEW.seconds}s",
    "TRUEUP_RESCUE_EVERY": "250ms",
    "TRUEUP_CONCURRENCY": "10",
    "TRUEUP_POOL_SIZE": "5",  # of each process; the server takes a hundred in all
    "TRUEUP_DRAIN_FOR": "5s",
}


class StepFailed(Exception):
    """Something did not happen as it should have; `detail` is what was last written about it."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(what)
        self.detail = detail


class Stage:
    def __init__(self, workers: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="trueup-demo-"))
        # As root without user namespaces PostgreSQL runs as nobody, who has to pass through; what is inside is private.
        self.directory.chmod(0o711)
        self.home = self.directory / "postgres"
        self._postgres = EmbeddedPostgres(self.home, linger=timedelta(0))
        self._environment: dict[str, str] = {}
        self._names = ascii_uppercase[:workers]
        self.workers: list[Worker] = []
        self._shop_log = self.directory / "shop.log"
        self._shop: subprocess.Popen[bytes] | None = None

    @contextmanager
    def database(self) -> Iterator[psycopg.Connection[Any]]:
        """Start the server, and make the tables of trueup and of the shop. Raises TrueupError."""
        url = self._postgres.acquire()
        with psycopg.connect(url, autocommit=True) as connection:
            Migrator(connection, "trueup").migrate()
            connection.execute((files("trueup.demo") / "tables.sql").read_bytes())
            self._environment = environment(url)
            self.workers = [
                Worker(name, self.directory / f"worker-{name}.log", self._environment) for name in self._names
            ]
            yield connection

    def open_shop(self, part: str, jobs: int) -> None:
        """Start the process that takes the orders of a part of the day and then ends."""
        with self._shop_log.open("ab") as log:
            self._shop = subprocess.Popen(
                [sys.executable, "-m", "trueup.demo.shop", part, str(jobs)],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for us to deal with
            )

    def shop_is_open(self) -> bool:
        """Whether orders are still being taken. Raises StepFailed when the shop could not take them."""
        status = 0 if self._shop is None else self._shop.poll()
        if status:
            raise StepFailed(f"the shop ended with status {status}", self._shop_log.read_text("utf-8", "replace"))
        return status is None

    def clear(self, *, keep: bool) -> None:
        """End every process, and remove the directory unless it is to be kept. May be called at any moment."""
        for worker in self.workers:
            worker.kill()
        if self._shop is not None:
            self._shop.kill()
            self._shop.wait()
        with suppress(TrueupError, TimeoutError, OSError):
            # A server that is only just starting may not heed this; it ends when it finds its directory gone.
            self._postgres.stop()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)


def environment(database_url: str) -> dict[str, str]:
    """The environment of the demo's processes: nothing that the user has set for trueup reaches them."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("TRUEUP_") and name != "DATABASE_URL"
    }
    path = os.pathsep.join(map(os.path.abspath, sys.path))  # they have another working directory
    return {**inherited, "PYTHONPATH": path, "TRUEUP_DATABASE_URL": database_url, **SETTINGS}
