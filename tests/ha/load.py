"""A database on the cluster with worker processes and clients at work on it, and the proof of what a failover left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.crash import gated
from tests.crash.in_hand import EVERY_JOB, LEDGER, WRITTEN
from tests.ha import checks
from tests.ha.checks import UNKNOWN, Failover
from tests.ha.producers import TABLE, Producers
from tests.support import invariants, recorder, row_invariants, row_recorder
from tests.support.invariants import Violations
from tests.support.journal import read_journals
from tests.support.patroni import HighAvailability, Node
from tests.support.processes import Fleet
from tests.support.report import Part
from tests.support.tick_invariants import ticks_fire_once
from tests.support.waiting import wait_until
from trueup.clock import elapsed
from trueup.store.db.migrate import Migrator

WORKERS = 3
SETTINGS = {
    "TRUEUP_LEASE_FOR": "4s",
    "TRUEUP_STATEMENT_TIMEOUT": "4s",
    "TRUEUP_CONCURRENCY": "8",
    "TRUEUP_DRAIN_FOR": "10s",
}
WARM = 40  # acknowledged writes before the fault comes
DRAIN_WITHIN = 90
ABOUT_JOURNALS = ("I6", "I7")  # compare what processes said with what is there: not where commits may be lost

JOBS_BY_WRITE = "select (args ->> 'n')::bigint, count(*) from (select kind, args from trueup.jobs union all select kind, args from trueup.history) as every where kind = 'transfer' group by 1"
LIVE = "select id, kind, state from trueup.jobs where schedule is null"
LEFT = " + ".join(f"(select count(*) from tasks_{mode} where state <> 'done')" for mode in gated.MODES)
DRAINED = (
    f"select (select count(*) from trueup.jobs where schedule is null) + (select count(*) from trueup.rows) + {LEFT}"
)


class Load:
    """`exact`: the cluster promises that everything acknowledged survives. `seen_is_kept`: and what could only be seen does."""

    def __init__(
        self, ha: HighAvailability, url: str, database: str, workers: Fleet, part: Part, *, exact: bool
    ) -> None:
        self.ha = ha
        self.url = url
        self.database = database
        self.workers = workers
        self.part = part
        self.exact = exact
        self.seen_is_kept = True
        self.producers = Producers(url)
        self.fork: int | None = None
        self._fault_at = elapsed()

    # -- while it runs ------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Return when clients write, workers work and ticks fire."""
        self.part.doing = "warming up"
        self.producers.start()
        for worker in [self.workers.launch() for _ in range(WORKERS)]:
            self.workers.wait_registered(worker)
        busy = "select (select count(*) from trueup.history where kind = 'transfer') > 10 and (select count(*) from trueup.ticks) > 1"
        wait_until(lambda: len(self.producers.acknowledged()) >= WARM, "clients write", timeout=60, pause=0.1)
        wait_until(lambda: self.query(busy) == [(True,)], "workers work", timeout=60, pause=0.1)

    def fault(self, what: str) -> None:
        """The clock of the timeline begins here."""
        self._fault_at = elapsed()
        self.part.doing = what
        self.part.timeline.append((0.0, what))

    def saw(self, what: str) -> None:
        self.part.doing = what
        self.part.timeline.append((round(elapsed() - self._fault_at, 1), what))

    def promoted(self, old: Node) -> Node:
        """The new primary, once one of the others has been promoted."""
        primary = self.ha.wait_primary(self.ha.others(old))
        self.fork = primary.fork()
        self.saw(f"{primary.name} is the primary, on timeline {primary.timeline()}")
        return primary

    def written_again(self) -> None:
        """Return when a write that began after the last thing seen is acknowledged, and a job was done after it."""
        since = elapsed()
        fresh = lambda: any(write.began > since for write in self.producers.acknowledged())  # noqa: E731
        wait_until(fresh, "clients write again", timeout=DRAIN_WITHIN, pause=0.05)
        self.saw("clients write again")
        completed = lambda: any(  # noqa: E731
            line["elapsed"] > since for line in self._journal() if line.get("event") == "job.completed"
        )
        wait_until(completed, "workers finish jobs again", timeout=DRAIN_WITHIN, pause=0.1)
        self.saw("workers finish jobs again")

    def drain(self) -> None:
        """Return when the clients have stopped and nothing is left to do, or not within the bound."""
        self.producers.stop()
        self.part.doing = "working off the backlog"
        with suppress(TimeoutError):
            wait_until(self._drained, "all is done", timeout=DRAIN_WITHIN, pause=0.2)
            self.saw("the backlog is worked off")

    def query(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """On the primary, as soon as there is one."""
        answers: list[list[tuple[Any, ...]]] = []

        def answered() -> bool:
            with suppress(psycopg.OperationalError), psycopg.connect(self.url, autocommit=True) as connection:
                answers.append(connection.execute(statement.encode(), parameters).fetchall())
            return bool(answers)

        wait_until(answered, "the primary answers", timeout=DRAIN_WITHIN, pause=0.2)
        return answers[0]

    def _drained(self) -> bool:
        return self.query(DRAINED) == [(0,)]

    def _journal(self) -> list[dict[str, Any]]:
        return read_journals(self.workers.journals)

    # -- the proof ----------------------------------------------------------------------------------------------------

    def prove(self) -> Failover:
        """Stop the workers in order, and put everything that must hold and does not into the part."""
        self.part.doing = "checking"
        self.workers.stop_all()
        failover = self.failover()
        for name, check in checks.CHECKS.items():
            self._add(name, checks.facts(failover)[name], check(failover))
        self._prove_jobs()
        self._prove_rows()
        ledger = self.query(LEDGER)
        runs = Counter(row[0] for row in self.query(f"select due_at from {EVERY_JOB} where schedule is not null"))
        self._add("I1 I2 ticks", sum(row[2] for row in ledger), ticks_fire_once(ledger, runs))  # type: ignore[arg-type]
        self._count(failover, ledger)
        return failover

    def failover(self) -> Failover:
        return Failover(
            writes=list(self.producers.writes),
            orders=frozenset(row[0] for row in self.query("select n from orders")),
            jobs=dict(self.query(JOBS_BY_WRITE)),
            live=self.query(LIVE),  # type: ignore[arg-type]
            journal=self._journal(),
            moves=recorder.read_moves(self.url),
            done=frozenset(self.query("select id, term from trueup.history where state = 'done'")),  # type: ignore[arg-type]
            exact=self.exact,
            seen_is_kept=self.seen_is_kept,
            fork=self.fork,
        )

    def _add(self, name: str, looked_at: int, found: Violations) -> None:
        self.part.checked[name] = self.part.checked.get(name, 0) + looked_at
        self.part.violations += found

    def _of_histories(self, every: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            name: check
            for name, check in every.items()
            if (self.exact and self.seen_is_kept) or name not in ABOUT_JOURNALS
        }

    def _prove_jobs(self) -> None:
        read = invariants.read_history(self.url, self.workers.journals)
        history = replace(
            read,
            journal=[line for line in read.journal if "effect" not in line and "held" not in line],
            effects=dict(self.query("select job, count(*) from effects.transferred group by job")),
            transactional=frozenset({"transfer"}),
        )
        for name, check in self._of_histories(invariants.CHECKS).items():
            self._add(f"{name} jobs", len(history.moves), check(history))
        recorded = {move.job for move in history.moves}
        self._add("I17 jobs", len(recorded), invariants.nothing_is_lost(self.url, history, enqueued=recorded))

    def _prove_rows(self) -> None:
        history = replace(
            row_invariants.read_history(self.url, self.workers.journals),
            places={mode: f"tasks_{mode}" for mode in gated.MODES},
            effects=Counter({(name, key): count for name, key, count in self.query(WRITTEN)}),
            written=self.query("select reconciler, key, term from effects.written"),  # type: ignore[arg-type]
            max_attempts=dict.fromkeys(gated.MODES, gated.ATTEMPTS),
        )
        for name, check in self._of_histories(row_invariants.CHECKS).items():
            self._add(f"{name} rows", len(history.known), check(history))

    def _count(self, failover: Failover, ledger: list[tuple[Any, ...]]) -> None:
        acknowledged = sorted(self.producers.acknowledged(), key=lambda write: write.ended)
        unknown = [write for write in failover.writes if write.outcome == UNKNOWN]
        ended = sorted(line["elapsed"] for line in failover.journal if line.get("event") == "job.completed")
        inside = self.producers.acknowledged(inside=True)
        self.part.numbers.update(
            {
                "writes acknowledged": len(acknowledged) + len(inside),
                "writes acknowledged and lost": len(failover.lost()),
                "writes with an unknown outcome": len(unknown),
                "of these there": sum(bool(failover.jobs.get(write.n)) for write in unknown),
                "longest pause of writes, s": longest([write.ended for write in acknowledged]),
                "jobs done": len(failover.done),
                "runs done and lost": len(failover.undone()),
                "longest pause of finished jobs, s": longest(ended),
                "ticks fired": sum(row[3] == "fired" for row in ledger),
                "ticks skipped or merged": sum(row[2] for row in ledger) - sum(row[3] == "fired" for row in ledger),
                "tokens of the lease": len({line["term"] for line in failover.journal if "held" in line}),
            }
        )


def longest(moments: list[float]) -> float:
    return round(max((later - earlier for earlier, later in pairwise(moments)), default=0.0), 1)


@contextmanager
def load(
    ha: HighAvailability, part: Part, directory: Path, *, synchronous: bool, exact: bool | None = None
) -> Iterator[Load]:
    """On a database of its own, while the cluster is whole; every node has what is made here when this is entered."""
    part.doing = "waiting for a whole cluster"
    primary = ha.set_synchronous(synchronous)
    database = f"load_{part.name.replace('-', '_')}"
    primary.query(f"create database {database}")
    url = ha.url(database)
    with psycopg.connect(url, autocommit=True) as connection:
        Migrator(connection, "trueup").migrate()
        connection.execute(gated.TABLES)
        connection.execute(sql.SQL(TABLE))
    recorder.install(url)
    row_recorder.install(url, *((f"tasks_{mode}", "id", "state") for mode in gated.MODES))
    ha.wait_caught_up()
    gate = directory / "gate"
    directory.mkdir(parents=True, exist_ok=True)
    gate.touch()
    with Fleet("tests.ha.fleet", url, directory, GATE=str(gate), **SETTINGS) as workers:
        this = Load(ha, url, database, workers, part, exact=synchronous if exact is None else exact)
        try:
            yield this
        finally:
            with suppress(TimeoutError):
                this.producers.stop()
