"""Workers of two releases on one database, and the migration from one to the other while they work."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.crash import fleet, mixed_checks, released
from tests.crash.in_hand import EVERY_JOB, LEDGER
from tests.support import invariants, recorder
from tests.support.invariants import History, Violations
from tests.support.processes import ROOT, Fleet
from tests.support.tick_invariants import ticks_fire_once
from trueup.store.db.migrate import Migrator, all_steps

MODULE = "tests.crash.released"
OLD = "5d2566c170eed794dde37805a71601c9e12c8a73"  # the commit of the older release: its schema has 4 of today's migrations
LIVE = "select count(*) from trueup.jobs where schedule is null"
MIGRATE_WITHIN = 60.0  # seconds, while the server is restarted again and again


class NoOldRelease(Exception):
    """The clone has no history to take the older release from."""


def unpack(directory: Path) -> Path:
    """The tree of the older release, with our program in it. Raises NoOldRelease."""
    tree = directory / "old"
    tree.mkdir()
    archive = directory / "old.tar"
    command = ["git", "archive", "--output", str(archive), OLD, "src", "tests"]
    if subprocess.run(command, cwd=ROOT, capture_output=True).returncode:
        raise NoOldRelease(f"commit {OLD} is not in this clone: git fetch --unshallow")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(tree)], check=True)
    shutil.copy(released.__file__, tree / "tests/crash")
    return tree


class Releases:
    """`old` works from the start, on the schema of its release; `new` joins it when `migrate` was called."""

    def __init__(self, url: str, old: Fleet, new: Fleet, peace: Path) -> None:
        self.url = url
        self.old = old
        self.new = new
        self._peace = peace
        self._migrated_at: datetime | None = None
        self._parted_at: datetime | None = None  # when the last worker of the old release was asked to stop
        self.new.size = 0

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def migrate(self) -> None:
        """What old workers can live with. They go on, and those of the new release join them."""
        self._migrate(post=False)
        self._migrated_at = self._now()
        self.old.size = self.new.size = 1

    def part(self) -> None:
        """The old release is stopped, and what only it needed is removed. The new one has to end everything."""
        self._peace.touch()
        self._parted_at = self._now()
        self.old.stop_all()
        self._migrate(post=True)
        while len(self.new.alive) < 2:
            self.new.launch()

    def left(self) -> int:
        """Jobs that have not ended, but for those of the schedule, which come every second."""
        return int(self.query(LIVE)[0][0])

    def proof(self) -> tuple[int, Violations]:
        """When no worker runs any more."""
        history = self._history()
        found = invariants.check(history)
        found += invariants.nothing_is_lost(self.url, history, enqueued={move.job for move in history.moves})
        runs = Counter(row[0] for row in self.query(f"select due_at from {EVERY_JOB} where schedule is not null"))
        found += ticks_fire_once(self.query(LEDGER), runs)  # type: ignore[arg-type]
        assert self._migrated_at is not None
        assert self._parted_at is not None
        found += mixed_checks.both_releases_worked(
            self._ended(history), began=self._migrated_at, ended_at=self._parted_at
        )
        return len(history.moves), found

    def _ended(self, history: History) -> list[tuple[datetime, str]]:
        """When a job ended as done, and by which release's worker."""
        of_old = {lease.holder for lease in history.leases if lease.pid in self.old.took}
        return [(move.at, "old" if move.holder in of_old else "new") for move in history.moves if move.after == "done"]

    def _history(self) -> History:
        """Idempotency keys without the moment, which those of the older release do not have."""
        killed = self.old.killed | self.new.killed
        read = invariants.read_history(self.url, self.new.journals, killed=killed)
        return History(
            moves=read.moves,
            leases=read.leases,
            journal=[
                {**line, "key": line["key"].partition("@")[0]} if "effect" in line else line for line in read.journal
            ],
            killed=read.killed,
            effects=dict(self.query("select job, count(*) from effects.written group by job")),
            transactional=fleet.TRANSACTIONAL,
            outside=fleet.OUTSIDE,
            limits=fleet.LIMITS,
        )

    def _migrate(self, *, post: bool) -> None:
        deadline = time.monotonic() + MIGRATE_WITHIN
        while True:
            try:
                with psycopg.connect(self.url, autocommit=True) as connection:
                    Migrator(connection, "trueup").migrate(post=post)
                return
            except psycopg.OperationalError:  # the server was restarted under it: it goes on where it was
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _now(self) -> datetime:
        return self.query("select clock_timestamp()")[0][0]  # type: ignore[no-any-return]


@contextmanager
def releases(url: str, directory: Path, *, workers_url: str, **settings: str) -> Iterator[Releases]:
    """On this empty database, which gets the schema of the older release and is recorded from here on. Raises NoOldRelease."""
    tree = unpack(directory)
    with psycopg.connect(url, autocommit=True) as connection:
        Migrator(connection, "trueup", steps=all_steps(tree / "src/trueup/store/migrations")).migrate()
        connection.execute(fleet.TABLES)
    recorder.install(url)
    peace = directory / "peace"
    settings = {**settings, released.PEACE: str(peace)}
    theirs = {"PYTHONPATH": os.pathsep.join(str(each) for each in (tree / "src", tree))}
    for name in ("workers-old", "workers-new"):
        (directory / name).mkdir()
    with (
        Fleet(MODULE, workers_url, directory / "workers-old", tree=tree, **settings, **theirs) as old,
        Fleet(MODULE, workers_url, directory / "workers-new", **settings) as new,
    ):
        old.journals = new.journals
        yield Releases(url, old, new, peace)
