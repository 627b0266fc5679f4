"""The measuring. Every contestant has a database of its own in each round, made afresh, and processes of its own.

Rounds go through the work, and each piece of work through the contestants, so that what is compared was measured within
seconds of each other; who goes first moves on by one each round. A checkpoint before each piece keeps the server from writing
the pages that another has left. A contestant's jobs are counted three times: in its queue before, in its worker, where each
number must come exactly once, and in its queue afterwards.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from bench.jobs import percentile
from bench.peers.contestants import Contestant
from bench.peers.process import Process, WentWrong
from bench.server import cpu_seconds, process_seconds, wal_position, wal_records
from trueup.embedded.cluster import Cluster

AT_LEAST = 1_000  # jobs for the slow ones, too: fewer say nothing
ONE_BY_ONE = 1_000
BY_CALLERS = 10_000
PICK_UPS = 300  # a round
REST = 10.0  # seconds at most until idle workers have made their first rounds
LOOK_EVERY = 0.003  # seconds between looks whether the queue is empty, once every job has run

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """What a job of a drain took: CPU time of the worker and of the server, in microseconds, and bytes of write-ahead log
    by what they are about.

    They say more than the rate on a machine that does other work too.
    """

    client: float
    server: float
    records: dict[str, float]

    @property
    def wal(self) -> float:
        return sum(self.records.values())


@dataclass
class Figures:
    """What one contestant reached, round by round."""

    jobs: int = 0
    drain: list[float] = field(default_factory=list)
    cost: list[Cost] = field(default_factory=list)
    bulk: list[float] = field(default_factory=list)
    one_by_one: list[float] = field(default_factory=list)
    by_callers: list[float] = field(default_factory=list)
    pick_up: list[list[float]] = field(default_factory=list)
    urgent: list[list[float]] = field(default_factory=list)
    idle: float = 0.0

    def latency(self, share: float) -> float:
        """The median over the rounds of this percentile, in milliseconds."""
        return statistics.median(percentile(taken, share) for taken in self.pick_up)

    def urgent_latency(self, share: float) -> float:
        """The same for jobs of high priority behind a backlog."""
        return statistics.median(percentile(taken, share) for taken in self.urgent)

    def costs(self) -> Cost:
        """The medians over the rounds."""
        return Cost(
            statistics.median(one.client for one in self.cost),
            statistics.median(one.server for one in self.cost),
            {about: statistics.median(one.records[about] for one in self.cost) for about in self.cost[0].records},
        )


@dataclass(frozen=True)
class Entry:
    """A contestant in a round."""

    who: Contestant
    url: str
    cluster: Cluster
    database: psycopg.Connection[Any]
    figures: Figures

    def process(self, work: str, count: int) -> Process:
        self.database.execute("checkpoint")
        return Process(self.who.name, self.who.command(self.url, work, count))

    def spent(self, process: Process) -> tuple[float, float]:
        """CPU seconds so far, of the process and of the server."""
        return process_seconds(process.pid), cpu_seconds(self.cluster)

    def left(self) -> int:
        """Jobs in its queue."""
        row = self.database.execute(f"select count(*) from {self.who.queue}".encode()).fetchone()
        assert row is not None
        return int(row[0])

    def expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise WentWrong(f"{self.who.name}, {what}: {found} instead of {wanted}")


def pick_up(entry: Entry, jobs: int) -> None:
    count = min(jobs, PICK_UPS)
    with entry.process("pick-up", count) as process:
        taken = process.answer()["milliseconds"]
        process.finished()
    entry.expect("jobs picked up", len(taken), count)
    entry.expect("jobs left", entry.left(), 0)
    entry.figures.pick_up.append(taken)


def bulk(entry: Entry, jobs: int) -> None:
    entry.figures.bulk.append(_enqueued(entry, "bulk enqueue", jobs))


def one_by_one(entry: Entry, jobs: int) -> None:
    entry.figures.one_by_one.append(_enqueued(entry, "one-by-one enqueue", min(jobs, ONE_BY_ONE)))


def by_callers(entry: Entry, jobs: int) -> None:
    entry.figures.by_callers.append(_enqueued(entry, "enqueue by 100 callers", min(jobs, BY_CALLERS)))


def _enqueued(entry: Entry, work: str, count: int) -> float:
    before = entry.left()
    with entry.process(work, count) as process:
        seconds = process.answer()["seconds"]
        process.finished()
    entry.expect("jobs enqueued", entry.left() - before, count)
    return float(count / seconds)


def drain(entry: Entry, jobs: int) -> None:
    """From the moment the worker is told to start until its queue is empty in the database."""
    entry.database.execute("analyze")
    with entry.process("drain", jobs) as process:
        process.answer()
        position, before, started = wal_position(entry.database), entry.spent(process), time.perf_counter()
        process.answer()
        while entry.left():
            time.sleep(LOOK_EVERY)
        taken, after = time.perf_counter() - started, entry.spent(process)
        process.end()
        entry.expect("jobs run", process.answer(), {"ran": jobs, "different": jobs})
        process.finished()
    entry.figures.drain.append(jobs / taken)
    client, server = ((late - early) / jobs * 1e6 for early, late in zip(before, after, strict=True))
    written = wal_records(entry.cluster, position, wal_position(entry.database))
    entry.figures.cost.append(Cost(client, server, {about: size / jobs for about, size in written.items()}))


def urgent(entry: Entry, jobs: int) -> None:
    """One job of high priority at a time, while a backlog is drained: how long until its first line."""
    _enqueued(entry, "bulk enqueue", jobs)
    with entry.process("urgent", jobs) as process:
        entry.figures.urgent.append(process.answer()["milliseconds"])
        process.finished()
    entry.database.execute(f"delete from {entry.who.table}".encode())  # the backlog that is left


WORK: dict[str, Callable[[Entry, int], None]] = {
    "pick-up": pick_up,
    "bulk enqueue": bulk,
    "drain": drain,
    "urgent": urgent,
    "one-by-one enqueue": one_by_one,
    "enqueue by 100 callers": by_callers,
}


def share_of(who: Contestant, jobs: int) -> int:
    """How many jobs a contestant is given where the fast ones have so many."""
    return min(jobs, max(AT_LEAST, round(jobs * who.share)))


def measure(
    cluster: Cluster, contestants: Sequence[Contestant], *, jobs: int, rounds: int, idle_for: float, say: Say
) -> dict[str, Figures]:
    """Everything, by name. Raises WentWrong when a contestant does not run its jobs, CannotInstall when it is not to be had."""
    for who in contestants:
        say(f"{who.name} {who.release}")
        who.program()
    figures = {who.name: Figures(share_of(who, jobs)) for who in contestants}
    say(f"idle, all at once, {idle_for:.0f} s")
    with _entries(cluster, contestants, figures) as entries:
        idle(cluster, entries, idle_for)
    for number in range(rounds):
        first = number % len(contestants)
        with _entries(cluster, [*contestants[first:], *contestants[:first]], figures) as entries:
            for work, do in WORK.items():
                for entry in entries:
                    say(f"round {number + 1} of {rounds}, {work}, {entry.who.name}")
                    do(entry, entry.figures.jobs)
    return figures


@contextmanager
def _entries(cluster: Cluster, contestants: Sequence[Contestant], figures: dict[str, Figures]) -> Iterator[list[Entry]]:
    """A database for each of them, with its tables; gone afterwards."""
    names = {who.name: f"entry_{number}" for number, who in enumerate(contestants)}
    with psycopg.connect(cluster.url(), autocommit=True) as connection, ExitStack() as opened:
        for name in names.values():
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            opened.callback(connection.execute, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
        entries = []
        for who in contestants:
            url = cluster.url(names[who.name])
            database = opened.enter_context(psycopg.connect(url, autocommit=True))
            entries.append(Entry(who, url, cluster, database, figures[who.name]))
            with entries[-1].process("set up", 0) as process:
                process.finished()
        yield entries


def idle(cluster: Cluster, entries: Sequence[Entry], seconds: float) -> None:
    """Statements per second that the server logs for each, with one idle worker; all at once, as none has work to do."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        connection.execute("alter system set log_line_prefix = '%d '")
        connection.execute("select pg_reload_conf()")
        for entry in entries:
            name = sql.Identifier(entry.database.info.dbname)
            connection.execute(sql.SQL("alter database {} set log_statement = 'all'").format(name))
    with ExitStack() as running:
        workers = [running.enter_context(entry.process("idle", 0)) for entry in entries]
        for worker in workers:
            worker.answer()
        time.sleep(min(REST, seconds))
        before = [_statements(cluster, entry) for entry in entries]
        time.sleep(seconds)
        for entry, earlier in zip(entries, before, strict=True):
            entry.figures.idle = (_statements(cluster, entry) - earlier) / seconds
        for entry, worker in zip(entries, workers, strict=True):
            worker.end()
            entry.expect("jobs run while idle", worker.answer(), {"ran": 0})
            worker.finished()


def _statements(cluster: Cluster, entry: Entry) -> int:
    """Those sent so far. Our own connection is older than the setting, so it is not logged."""
    logged = re.compile(rf"^{entry.database.info.dbname} LOG:  (?:execute |statement: )", re.MULTILINE)
    return len(logged.findall(cluster.log.read_text(errors="replace")))
