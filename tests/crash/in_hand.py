"""One run of gated processes, with jobs, rows and ticks in hand when a fault comes, and the proof at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from tests.crash import gated
from tests.support import invariants, recorder, row_invariants, row_recorder
from tests.support.invariants import Violations
from tests.support.journal import read_journals
from tests.support.processes import Fleet
from tests.support.recorder import LeaseChange, Move
from tests.support.row_recorder import Known, UserChange
from tests.support.tick_invariants import ticks_fire_once
from tests.support.waiting import wait_until
from trueup import App

LEASE = "6s"  # longer than a busy machine keeps a process waiting: no lease ends here but by the fault
JOBS, ROWS = 8, 6  # in hand; rows of each way of keeping a lease
WRITTEN = "select reconciler, key, count(*) from effects.written group by 1, 2"
LEFT = "select kind, state, run_at - now() from trueup.jobs union all select reconciler, state, due_at - now() from trueup.rows limit 20"
LEDGER = "select due_at, last_due_at, count, outcome from trueup.ticks"
EVERY_JOB = "(select id, kind, schedule, due_at from trueup.jobs union all select id, kind, schedule, due_at from trueup.history) as every_job"

Recorded = TypeVar("Recorded", Move, LeaseChange, Known, UserChange)


class InHand:
    """`back_by` is how far behind its own past the database's clock is, or was for a while."""

    def __init__(self, url: str, workers: Fleet, gate: Path) -> None:
        self.url = url
        self.workers = workers
        self.gate = gate
        self.back_by = timedelta()
        self.began_at: datetime = self.query("select clock_timestamp()")[0][0]
        self.app = App(url)
        self.jobs = gated.declare(self.app)
        self._enqueued: set[int] = set()

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), params).fetchall()

    def count(self, what: str, *params: Any) -> int:
        return int(self.query(f"select count(*) from {what}", *params)[0][0])

    def enqueue(self, **counts: int) -> None:
        for kind, count in counts.items():
            getattr(self.jobs, kind).enqueue_many_sync([(n,) for n in range(count)])
        self._enqueued |= {row[0] for row in self.query(f"select id from {EVERY_JOB} where schedule is null")}

    def fill(self, first: int, count: int) -> None:
        """So many stale tasks for each way of keeping a lease."""
        insert = "insert into {} (id, changed_at) select n, now() - interval '1 day' from generate_series(%s::int, %s::int) as n"
        with psycopg.connect(self.url, autocommit=True) as connection:
            for mode in gated.MODES:
                table = sql.Identifier(f"tasks_{mode}")
                connection.execute(sql.SQL(insert).format(table), [first, first + count - 1])

    def more_work(self) -> None:
        self.enqueue(quick=5, rated=5)
        self.fill(ROWS + 1, 3)

    def in_hand(self) -> tuple[int, int]:
        """Jobs and rows that wait for the gate, and that somebody holds."""
        running = self.count("trueup.jobs where state = 'running' and kind = 'transfer'")
        return running, self.count("trueup.rows where state = 'held'")

    def fired(self) -> int:
        return self.count("trueup.ticks where outcome = 'fired'")

    def said(self, name: str) -> list[dict[str, Any]]:
        return [line for line in read_journals(self.workers.journals) if line.get("event") == name]

    def wait_fired(self, more: int) -> None:
        wanted = self.fired() + more
        wait_until(lambda: self.fired() >= wanted, f"{more} more ticks are fired", timeout=30)

    def wait_ended(self) -> None:
        """Return when nothing of what was enqueued or filled in is left."""
        live = "trueup.jobs where schedule is null"
        undone = " + ".join(f"(select count(*) from tasks_{mode} where state <> 'done')" for mode in gated.MODES)
        query = f"select (select count(*) from {live}) + {undone} + (select count(*) from trueup.rows)"
        try:
            wait_until(lambda: self.query(query) == [(0,)], "all jobs and rows have ended", timeout=30)
        except TimeoutError as error:
            error.add_note(f"{self.query(LEFT)}")
            raise

    # -- the proof ----------------------------------------------------------------------------------------------------

    def prove(self) -> None:
        """Stop the workers in order; then everything that must hold does, or AssertionError says what does not."""
        self.workers.stop_all()
        self.app.close_sync()
        found = [*self._of_jobs(), *self._of_rows(), *self._of_ticks(), *self._false_finishes()]
        wait_until(lambda: not invariants.nothing_is_left_open(self.url), "all sessions have ended")
        assert not found, "\n".join(found[:50])

    def _of_jobs(self) -> Violations:
        read = invariants.read_history(self.url, self.workers.journals, killed=self.workers.killed)
        history = replace(
            read,
            moves=self._in_order(read.moves),
            leases=self._in_order(read.leases),
            journal=[line for line in read.journal if "effect" not in line],  # those are of rows
            effects=dict(self.query("select job, count(*) from effects.transferred group by job")),
            transactional=frozenset({"transfer"}),
        )
        ticked = {row[0] for row in self.query("select job_id from trueup.ticks where job_id is not null")}
        lost = invariants.nothing_is_lost(self.url, history, enqueued=self._enqueued | ticked)
        return invariants.check(history) + lost

    def _of_rows(self) -> Violations:
        read = row_invariants.read_history(self.url, self.workers.journals, killed=self.workers.killed)
        history = replace(
            read,
            known=self._in_order(read.known),
            users=self._in_order(read.users),
            places={mode: f"tasks_{mode}" for mode in gated.MODES},
            effects=Counter({(name, key): count for name, key, count in self.query(WRITTEN)}),
            written=self.query("select reconciler, key, term from effects.written"),
            max_attempts=dict.fromkeys(gated.MODES, gated.ATTEMPTS),
        )
        return row_invariants.check(history)

    def _of_ticks(self) -> Violations:
        runs = Counter(row[0] for row in self.query(f"select due_at from {EVERY_JOB} where schedule is not null"))
        return ticks_fire_once(self.query(LEDGER), runs)  # type: ignore[arg-type]

    def _false_finishes(self) -> Violations:
        """What a process has taken for done is."""
        done = {row[0] for row in self.query("select id from trueup.history where state = 'done'")}
        said = {line["job_id"] for line in self.said("job.completed")}
        return [f"job {job} was said to be completed and is not" for job in sorted(said - done)]

    def _in_order(self, recorded: Sequence[Recorded]) -> list[Recorded]:
        """With the moments of changes on a clock that never went back; by what they were judged stays as it was."""
        return [replace(each, at=each.at + self.back_by) if each.at < self.began_at else each for each in recorded]


@contextmanager
def in_hand(url: str, directory: Path, *, workers_url: str | None = None) -> Iterator[InHand]:
    """Two workers on this migrated database, which is recorded from here on, with jobs and rows in hand, and ticks that fire.

    Nothing in hand ends before the gate is there. Workers may be given another way to the database, as another role perhaps.
    """
    theirs = workers_url or url
    with psycopg.connect(theirs, autocommit=True) as connection:
        connection.execute(gated.TABLES)
    recorder.install(theirs)
    row_recorder.install(theirs, *((f"tasks_{mode}", "id", "state") for mode in gated.MODES))
    gate = directory / "gate"
    with Fleet("tests.crash.gated", theirs, directory, TRUEUP_LEASE_FOR=LEASE, GATE=str(gate)) as workers:
        this = InHand(url, workers, gate)
        try:
            this.enqueue(rated=3)
            for worker in [workers.launch() for _ in range(2)]:
                workers.wait_registered(worker)
            # Before the others, which take the places of all: one in hand would wait with them, and be held by the dead with them.
            wait_until(lambda: this.count("trueup.jobs where kind = 'rated'") == 0, "those with a rate have ended")
            this.enqueue(transfer=JOBS)
            this.fill(1, ROWS)
            this.wait_fired(2)
            all_of_it = (JOBS, len(gated.MODES) * ROWS)
            wait_until(lambda: this.in_hand() == all_of_it, "all jobs and rows are in hand", timeout=30)
            yield this
        finally:
            this.app.close_sync()
