"""All faults, mixed at random, for a while: `python -m tests.crash.chaos --minutes 5 [--seed 7] [--json FILE]`.

Three fleets work on one server. One has jobs of every kind. The second has reconcilers in all claim modes, a purge, a scan,
webhooks, a schedule for every second and leases of all three kinds, while users change the same rows in transactions of their own.
Half of their workers are behind PgBouncer, and so are producers that enqueue in transactions of their own. The third fleet begins
as an older release on its own schema; after half of the time the database is migrated under it, and workers of today's release
join.

Workers are killed, stopped past their leases and ended; the database is restarted, its sessions are ended; the network is cut,
silenced and slowed; the pooler is killed; Redis forgets and restarts; the receiver of the webhooks lies. A table shows the faults
that have landed. At the end everything must have ended, once, and every invariant must hold.

The exit status is 1 on a violation; then the seed and the violations are printed. It is 2 when a fault never landed, or there was
nothing to check of a noun: that part proves nothing. The seed decides which faults come and when they are asked for; how the
processes interleave with them stays up to the machine.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from apps.servers.valkey import Valkey
from tests.crash import mixed_checks, pooled
from tests.crash.faults import Fault, Faults
from tests.crash.others import Others, others
from tests.crash.pooled import Producers
from tests.crash.receiver import Receiver
from tests.crash.releases import NoOldRelease, Releases, releases
from tests.crash.run import Run, run
from tests.support import invariants, report
from tests.support.database import TestServer
from tests.support.invariants import History, Violations
from tests.support.pgbouncer import PgBouncer
from tests.support.proxy import Proxy
from tests.support.report import Live, Part
from tests.support.waiting import wait_drained
from trueup import DatabaseUnavailable

TITLE = "All faults, mixed at random"
CALM = (0.0, 0.6)  # seconds between two faults of one kind
MORE_EVERY = 3.0  # seconds between two loads of work
MAX_LEFT = 150  # jobs or rows, beyond which nothing is added: what a machine cannot do meanwhile it would have to do afterwards
STALL = 60.0  # seconds in which less must be left: a lease, a poll, the longest back-off, on a busy machine
ENDS_WITHIN = timedelta(minutes=15)  # the backlog of all that was down, at whatever rate the machine has
KINDS = ("quick", "transfer", "transfer_sync", "flaky", "slow", "deliver", "limited", "choosy", "fair", "rated")
NOUNS = {
    "jobs": "jobs of every kind",
    "rows": "reconcilers in all claim modes",
    "schedules": "a schedule for every second",
    "leases": "leases in PostgreSQL, by advisory lock and in Redis",
    "purges": "a purge",
    "scans": "a scan",
    "users": "users' own transactions over the same rows",
    "webhooks": "webhooks to a receiver that lies",
    "producers": "producers behind PgBouncer, with a row and its job in one transaction",
    "pooler": "half of the workers behind PgBouncer in transaction mode",
    "releases": "two releases at once, and the migration between them",
}


@dataclass
class Stage:
    """Everything that works while faults come."""

    pooler: PgBouncer
    databases: Sequence[str]  # that workers reach through the pooler
    receiver: Receiver
    crash: Run
    producers: Producers
    rest: Others
    deploy: Releases | None  # None where the older release cannot be had


class Rampage:
    def __init__(self, seed: int, faults: Faults, stage: Stage, parts: Sequence[Part]) -> None:
        self._seed = seed
        self._faults = faults
        self._stage = stage
        self._crash = stage.crash
        self._rest = stage.rest
        self._parts = {part.name: part for part in parts}
        self._failed: list[BaseException] = []
        self._ended = threading.Event()

    def rage(self, seconds: float) -> None:
        """Faults of two kinds at a time, and more work all the while."""
        began = time.monotonic()
        loops = [
            self._bringing("processes", self._faults.of_processes()),
            self._bringing("surroundings", self._faults.of_surroundings()),
            self._loading(),
            self._migrating(began + seconds / 2),
        ]
        threads = [threading.Thread(target=self._until, args=[began + seconds, once]) for once in loops]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:  # also on Ctrl-C: what is under way ends first, so that everything can be cleaned up
            self._ended.set()
            for thread in threads:
                thread.join()
        if self._failed:
            raise self._failed[0]

    def _until(self, ends_at: float, once: Callable[[], None]) -> None:
        try:
            while time.monotonic() < ends_at and not self._failed and not self._ended.is_set():
                once()
        except BaseException as error:
            self._failed.append(error)

    def _bringing(self, name: str, among: Sequence[Fault]) -> Callable[[], None]:
        rng = random.Random(f"{self._seed} {name}")

        def once() -> None:
            self._faults.bring(rng, among)
            self._faults.refill()
            time.sleep(rng.uniform(*CALM))

        return once

    def _loading(self) -> Callable[[], None]:
        rng = random.Random(f"{self._seed} work")

        def once() -> None:
            job = getattr(self._crash.jobs, rng.choice(KINDS))
            count = rng.randint(5, 35)
            try:
                if self._crash.left() < MAX_LEFT:
                    job.enqueue_many_sync([(f"tenant {n % 5}" if job.kind == "fair" else n,) for n in range(count)])
                if self._rest.left() < MAX_LEFT:
                    self._rest.more()
            except (psycopg.Error, DatabaseUnavailable):
                pass  # the server is away: what was not acknowledged may be there or not
            time.sleep(MORE_EVERY)

        return once

    def _migrating(self, at: float) -> Callable[[], None]:
        deploys = [self._stage.deploy] if self._stage.deploy else []

        def once() -> None:
            if deploys and time.monotonic() >= at:
                deploys.pop().migrate()
            time.sleep(0.5)

        return once

    def aftermath(self) -> None:
        """Peace, until everything has ended; then the proof of each noun."""
        at_peace = self._crash.now()
        self._rest.users.stop()
        self._stage.producers.stop()
        backlogs = {"jobs": self._crash.left, "rows": self._rest.left}
        if self._stage.deploy:
            self._stage.deploy.part()
            backlogs["releases"] = self._stage.deploy.left
        for name, left in backlogs.items():
            try:
                wait_drained(left, name, stall=STALL, most=ENDS_WITHIN.total_seconds())
            except TimeoutError as error:
                self._parts[name].violations.append(f"I8: {error}")
        if self._rest.left():
            self._parts["rows"].violations.append(f"I8: {self._rest.not_settled()}")
        for fleet in self._faults.fleets:
            fleet.stop_all()
        self._crash.app.close_sync()
        self._rest.app.close_sync()
        sessions = [each for name in self._stage.databases for each in self._stage.pooler.sessions(name)]
        self._stage.pooler.stop()
        self._crash.enqueued = {row[0] for row in self._crash.query("select distinct job from recorded.changes")}
        found = self._crash.violations()
        history = self._crash.history()
        found += invariants.everything_ends_in_time(history, fault_ended_at=at_peace, within=ENDS_WITHIN)
        proofs: dict[str, Callable[[], tuple[int, Violations]]] = {
            "jobs": lambda: (len(history.moves), found),
            "rows": self._rest.of_rows,
            "schedules": self._rest.of_ticks,
            "leases": self._rest.of_leases,
            "purges": self._rest.of_purges,
            "scans": self._rest.of_scans,
            "users": self._rest.of_users,
            "webhooks": self._rest.of_webhooks,
            "producers": lambda: pooled.of_producers(self._crash.url, self._stage.producers.acknowledged),
            "pooler": lambda: (len(sessions), mixed_checks.sessions_are_clean(sessions)),
        }
        if self._stage.deploy:
            proofs["releases"] = self._stage.deploy.proof
        for name, prove in proofs.items():
            looked_at, violations = prove()
            part = self._parts[name]
            part.checked["facts"] = looked_at
            part.violations += violations
            if not looked_at:
                part.void = "there was nothing to check"
        self._parts["jobs"].numbers = self._crash.states()
        told = self._parts["webhooks"].numbers = dict(self._stage.receiver.told)
        if untold := [lie for lie, times in told.items() if not times]:
            self._parts["webhooks"].void = f"never told: {', '.join(untold)}"
        behind = self._ended_behind_the_pooler(history)
        self._parts["pooler"].numbers = {"jobs ended by workers behind it": behind}
        if not behind:
            self._parts["pooler"].void = "no worker behind it has ended a job"

    def _ended_behind_the_pooler(self, history: History) -> int:
        behind = {pid for pid, way in self._crash.workers.took.items() if way != self._crash.workers.url}
        holders = {lease.holder for lease in history.leases if lease.pid in behind}
        return sum(move.after == "done" and move.holder in holders for move in history.moves)


def rampage(seconds: float, seed: int, directory: Path, parts: Sequence[Part]) -> Faults:
    """Faults for so long, then peace until everything has ended. What came of it is in the parts."""
    with ExitStack() as stack:
        server = stack.enter_context(TestServer(directory / "pg", synchronous_commit="on", full_page_writes="on"))
        valkey = stack.enter_context(Valkey())
        proxies: list[Proxy] = []
        stage = _set(stack, seed, directory, server, valkey, proxies)
        if stage.deploy is None:
            next(
                part for part in parts if part.name == "releases"
            ).void = "this clone has no history: git fetch --unshallow"
        fleets = [stage.crash.workers, stage.rest.workers]
        fleets += [stage.deploy.old, stage.deploy.new] if stage.deploy else []
        choices = random.Random(f"{seed} faults")
        faults = Faults(choices, fleets, server.cluster, proxies, stage.pooler, valkey)
        ended = threading.Event()
        drawing = threading.Thread(target=_draw, args=[faults, parts, ended], daemon=True)
        drawing.start()
        try:
            faults.refill()
            this = Rampage(seed, faults, stage, parts)
            this.rage(seconds)
            this.aftermath()
        finally:
            ended.set()
            drawing.join()
        return faults


def _set(
    stack: ExitStack, seed: int, directory: Path, server: TestServer, valkey: Valkey, proxies: list[Proxy]
) -> Stage:
    """Three databases with their fleets. Every second worker of the first two is behind the pooler, the others behind a proxy each."""
    settings = {"TRUEUP_STATEMENT_TIMEOUT": "2s", "TRUEUP_REDIS_URL": valkey.url}
    pooler = stack.enter_context(PgBouncer(server.cluster.url(), default_pool_size=pooled.POOL_SIZE))
    receiver = stack.enter_context(Receiver(random.Random(f"{seed} receiver")))

    def way(url: str) -> str:
        proxies.append(stack.enter_context(Proxy.before(url)))
        return proxies[-1].url(url)

    urls = [stack.enter_context(server.database()) for _ in range(2)]
    databases = [str(conninfo_to_dict(url)["dbname"]) for url in urls]
    crash = stack.enter_context(run(urls[0], directory / "jobs", workers_url=way(urls[0]), **settings))
    with psycopg.connect(urls[0], autocommit=True) as connection:
        connection.execute(pooled.TABLE)
    rng = random.Random(f"{seed} rows")
    rest = stack.enter_context(others(urls[1], directory / "rest", rng, receiver, workers_url=way(urls[1]), **settings))
    for fleet, name in zip((crash.workers, rest.workers), databases, strict=True):
        fleet.ways = (fleet.url, pooler.url(name))
    empty = stack.enter_context(server.made("template template0"))
    deploy: Releases | None = None
    with suppress(NoOldRelease):
        deploy = stack.enter_context(releases(empty, directory / "releases", workers_url=way(empty), **settings))
    producers = Producers(pooler.url(databases[0]))
    stack.callback(producers.stop)
    producers.start()
    return Stage(pooler, databases, receiver, crash, producers, rest, deploy)


def _draw(faults: Faults, parts: Sequence[Part], ended: threading.Event) -> None:
    live = Live(lambda: [*faults_table(faults), "", *report.parts_table(parts)], lambda: None)
    while not ended.wait(1):
        live.draw()


def faults_table(faults: Faults) -> list[str]:
    rows = [(name, faults.asked[name], faults.landed[name]) for name in sorted(faults.asked)]
    total = (f"{len(rows)} kinds", faults.asked.total(), faults.landed.total())
    return report.table(("fault", "asked for", "landed"), [*rows, total])


def play(seconds: float, seed: int, parts: Sequence[Part]) -> Faults | None:
    """A run that does not get to its end is a violation of all that it should have proved."""
    for part in parts:
        part.state = report.RUNNING
    faults: Faults | None = None
    with tempfile.TemporaryDirectory(prefix="trueup-chaos-") as directory:
        for each in ("jobs", "rest", "releases"):
            (Path(directory) / each).mkdir()
        try:
            faults = rampage(seconds, seed, Path(directory), parts)
        except Exception as error:
            places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            parts[0].violations.append(f"ended early: {error} in {' > '.join(places[-5:])}")
            for part in parts[1:]:
                part.void = part.void or "the run has ended early"
    for part in parts:
        part.judge()
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--json", type=Path, help="where to write the report for programs")
    given = parser.parse_args()
    command = f"make chaos MINUTES={given.minutes:g} SEED={given.seed}"
    print(command, flush=True)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # tries to connect would be in the table
    parts = [Part(name, title) for name, title in NOUNS.items()]
    faults = play(given.minutes * 60, given.seed, parts)
    asked, landed = (faults.asked, faults.landed) if faults else ({}, {})
    never = sorted(name for name in asked if not landed[name])
    print("\n" + report.readable(TITLE, command, parts))
    if faults:
        print("\n".join(faults_table(faults)))
    if never:
        print(f"never landed, and so proved nothing: {', '.join(never)}")
    if given.json:
        counted = {name: {"asked": asked[name], "landed": landed[name]} for name in sorted(asked)}
        report.write(
            given.json, report.document(command, parts, minutes=given.minutes, seed=given.seed, faults=counted)
        )
    status = report.EXIT[report.verdict(parts)]
    return status or (report.EXIT[report.VOID] if never else 0)


if __name__ == "__main__":
    sys.exit(main())
