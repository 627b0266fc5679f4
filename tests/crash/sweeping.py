"""One run of sweeping processes on a recorded database, and the proof at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.crash import sweeps
from tests.support import invariants, row_invariants, row_recorder
from tests.support.invariants import Violations
from tests.support.journal import read_journals
from tests.support.processes import START_WITHIN, Fleet, WorkerProcess
from tests.support.row_invariants import RowHistory
from tests.support.waiting import wait_until

WRITTEN = "select reconciler, key, count(*) from effects.written group by 1, 2"
FOLLOWING = """
select args ->> 'reconciler', args ->> 'key', count(*)
  from (select kind, args from trueup.jobs union all select kind, args from trueup.history) as every where kind = 'followed' group by 1, 2
"""
LEFT = "select reconciler, key, state, holder, term, attempt, reason, errors from trueup.rows limit 5"
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


class Sweeping:
    def __init__(self, url: str, workers: Fleet) -> None:
        self.url = url
        self.workers = workers

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def scalar(self, statement: str, *params: Any) -> Any:
        return self.query(statement, *params)[0][0]

    def now(self) -> datetime:
        return self.scalar("select clock_timestamp()")  # type: ignore[no-any-return]

    def launch(self, count: int, **settings: str) -> list[WorkerProcess]:
        """Start so many processes, and return when each is registered."""
        started = [self.workers.launch(**settings) for _ in range(count)]
        for process in started:
            registered = partial(self.query, "select from trueup.workers where pid = %s", process.pid)
            wait_until(registered, f"process {process.pid} is registered", timeout=START_WITHIN)
        return started

    def fill(self, mode: str, count: int) -> None:
        """So many stale tasks, the first the oldest."""
        statement = sql.SQL(
            "insert into {} (id, changed_at) select n, now() - interval '1 day' + n * interval '1 ms' from generate_series(1, %s) as n"
        )
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.format(sql.Identifier(f"tasks_{mode}")), [count])

    def states(self, mode: str) -> dict[str, int]:
        return dict(self.query(f"select state, count(*) from tasks_{mode} group by state"))

    def wait_done(self, *modes: str, timeout: float = 60) -> None:
        """Return when every task is done, and nothing is known about any. Survives a database that is away."""

        def done() -> bool:
            try:
                return all(self.states(mode).keys() == {"done"} for mode in modes) and self.known() == 0
            except psycopg.OperationalError:
                return False

        try:
            wait_until(done, "every task is done", timeout=timeout)
        except TimeoutError as error:
            error.add_note(f"{[self.states(mode) for mode in modes]}, {self.query(LEFT)}")
            raise

    def known(self) -> int:
        return int(self.scalar("select count(*) from trueup.rows"))

    def quarantined(self) -> list[tuple[Any, ...]]:
        return self.query("select reconciler, key, attempt from trueup.rows where state = 'quarantined'")

    def effects(self) -> Counter[tuple[str, str]]:
        """What was written together with an outcome, by whichever way."""
        return Counter({(name, key): count for name, key, count in [*self.query(WRITTEN), *self.query(FOLLOWING)]})

    def history(self) -> RowHistory:
        read = row_invariants.read_history(self.url, self.workers.journals, killed=self.workers.killed)
        return replace(
            read,
            places={mode: f"tasks_{mode}" for mode in sweeps.MODES},
            effects=self.effects(),
            written=self.query("select reconciler, key, term from effects.written"),
            max_attempts=dict.fromkeys(sweeps.MODES, sweeps.ATTEMPTS),
            batch=dict.fromkeys(sweeps.MODES, sweeps.BATCH),
        )

    def said(self, name: str) -> list[dict[str, Any]]:
        """What the processes said under this name."""
        return [line for line in read_journals(self.workers.journals) if line.get("event") == name]

    def begun(self) -> list[dict[str, Any]]:
        """The runs of handlers, each as its handler noted it."""
        return [line for line in read_journals(self.workers.journals) if "effect" in line]

    def prove(self, *, fault_ended_at: datetime | None = None, within: timedelta | None = None) -> None:
        """Stop the processes in order; then everything that must hold does, or AssertionError says what does not."""
        self.workers.stop_all()
        found = self.violations()
        if fault_ended_at is not None and within is not None:
            found += row_invariants.everything_ends_in_time(
                self.history(), fault_ended_at=fault_ended_at, within=within
            )
        assert not found, "\n".join(found[:50])

    def violations(self) -> Violations:
        found = row_invariants.check(self.history())
        deadlocks = self.scalar(DEADLOCKS)
        if deadlocks:
            found.append(f"{deadlocks} deadlocks")
        # The server notices a moment later that a killed client is gone.
        try:
            wait_until(lambda: not invariants.nothing_is_left_open(self.url), "all sessions have ended")
        except TimeoutError:
            found += invariants.nothing_is_left_open(self.url)
        return found + [f"left in the user's row: {row}" for row in self._marks()]

    def _marks(self) -> Iterable[tuple[Any, ...]]:
        """What a claim wrote to users' rows and nobody took back."""
        for mode in sweeps.MODES:
            marked = "state = 'working' or leased_by is not null or leased_until is not null"
            yield from self.query(
                f"select '{mode}', id, state, leased_by, leased_until from tasks_{mode} where {marked}"
            )


@contextmanager
def sweeping(
    url: str,
    directory: Path,
    names: Iterable[str],
    *,
    workers_url: str | None = None,
    record: bool = True,
    **settings: str,
) -> Iterator[Sweeping]:
    """Processes that sweep this migrated database, which is recorded from here on. They may be given another way to it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sweeps.TABLES)
    if record:
        places = [(f"tasks_{mode}", "id", "state") for mode in sweeps.MODES]
        row_recorder.install(url, *places, ("wallpapers", "id", "upload_state"))
    settings = {"SWEEPS": ",".join(names), **settings}
    with Fleet("tests.crash.sweeps", workers_url or url, directory, **settings) as workers:
        yield Sweeping(url, workers)
