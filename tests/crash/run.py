"""One crash run: a recorded database, a fleet of workers on it, jobs of every kind, and the proof at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from tests.crash import fleet
from tests.support import invariants, recorder
from tests.support.invariants import History, Violations
from tests.support.processes import Fleet
from tests.support.waiting import wait_until
from trueup import App
from trueup.config import load_settings

PREFETCH = load_settings(environ={}).prefetch  # the default, which the fleet leaves alone


class Run:
    def __init__(self, url: str, workers: Fleet) -> None:
        self.url = url
        self.workers = workers
        self.app = App(url)
        self.jobs = fleet.declare(self.app)
        self.enqueued: set[int] = set()

    def enqueue(self, **counts: int) -> None:
        """Enqueue this many jobs of each kind. Every one is known afterwards, also when a worker has finished it by then."""
        before = self._known()
        for kind, count in counts.items():
            job = getattr(self.jobs, kind)
            job.enqueue_many_sync([() if kind == "poison" else (n,) for n in range(count)])
        fresh, asked = self._known() - before, sum(counts.values())
        self.enqueued |= fresh
        if len(fresh) < asked:
            raise AssertionError(f"{asked} jobs were enqueued and {len(fresh)} are there")

    def note_enqueued(self) -> None:
        """Jobs that are there now count as enqueued."""
        self.enqueued |= self._known()

    def _known(self) -> set[int]:
        """Jobs that are live, and those that a worker has finished already."""
        return {row[0] for row in self.query("select id from trueup.jobs union select id from trueup.history")}

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def count(self, statement: str, *params: Any) -> int:
        return int(self.query(statement, *params)[0][0])

    def states(self) -> dict[str, int]:
        return dict(
            self.query(
                "select state, count(*) from (select state from trueup.jobs union all select state from trueup.history)"
                " as every group by state"
            )
        )

    def now(self) -> datetime:
        return self.query("select clock_timestamp()")[0][0]  # type: ignore[no-any-return]

    def left(self) -> int:
        """Jobs that have not ended."""
        return self.count("select count(*) from trueup.jobs")

    def wait_ended(self, timeout: float = 60) -> None:
        """Return when no job is live. Survives a database that is away."""

        def ended() -> bool:
            try:
                return self.left() == 0
            except psycopg.OperationalError:
                return False

        wait_until(ended, "every job has ended", timeout=timeout)

    def history(self) -> History:
        read = invariants.read_history(self.url, self.workers.journals, killed=self.workers.killed)
        return History(
            moves=read.moves,
            leases=read.leases,
            journal=read.journal,
            killed=read.killed,
            effects=dict(self.query("select job, count(*) from effects.written group by job")),
            transactional=fleet.TRANSACTIONAL,
            outside=fleet.OUTSIDE,
            limits=fleet.LIMITS,
            most_claimed=PREFETCH + self.workers.concurrency,
        )

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the workers said under this name."""
        return [line for line in self.history().journal if line.get("event") == name]

    def prove(self, *, fault_ended_at: datetime | None = None, within: timedelta | None = None) -> None:
        """Stop the workers in order; then everything that must hold does, or AssertionError says what does not."""
        self.workers.stop_all()
        self.app.close_sync()
        found = self.violations()
        if fault_ended_at is not None and within is not None:
            found += invariants.everything_ends_in_time(self.history(), fault_ended_at=fault_ended_at, within=within)
        assert not found, "\n".join(found[:50])

    def violations(self) -> Violations:
        history = self.history()
        found = invariants.check(history)
        found += invariants.nothing_is_lost(self.url, history, enqueued=self.enqueued)
        found += self._wrong_deliveries()
        # The server notices a moment later that a killed client is gone.
        try:
            wait_until(lambda: not invariants.nothing_is_left_open(self.url), "all sessions have ended")
        except TimeoutError:
            found += invariants.nothing_is_left_open(self.url)
        return found

    def _wrong_deliveries(self) -> Violations:
        """I5 for writes keyed by the idempotency key: one per done job."""
        wrong = self.query(
            "select id, n from trueup.history,"
            " lateral (select count(*) from effects.delivered where starts_with(key, 'deliver:' || id || '@')) as d(n)"
            " where kind = 'deliver' and state = 'done' and n <> 1"
        )
        return [f"I5: job {job} is done and recorded {count} deliveries" for job, count in wrong]


@contextmanager
def run(url: str, directory: Path, *, workers_url: str | None = None, **settings: str) -> Iterator[Run]:
    """A run on this migrated database, which is recorded from here on. Workers may be given another way to it."""
    recorder.install(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(fleet.TABLES)
    with Fleet("tests.crash.fleet", workers_url or url, directory, **settings) as workers:
        this = Run(url, workers)
        try:
            yield this
        finally:
            this.app.close_sync()
