"""All faults, mixed at random, for a while: `python -m tests.crash.chaos --minutes 5 [--seed 7] [--json FILE]`.

Two fleets work on one server: one has jobs of every kind, the other has reconcilers in all claim modes, a purge, a scan, a
schedule for every second and leases of all three kinds, while users change the same rows in transactions of their own. Workers are
killed, stopped past their leases and ended; the database is restarted, its sessions are ended; the network is cut, silenced and
slowed; Redis forgets and restarts. A table shows the faults that have landed. At the end everything must have ended, once, and
every invariant must hold.

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
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg

from apps.servers.valkey import Valkey
from tests.crash.faults import Fault, Faults
from tests.crash.others import Others, others
from tests.crash.run import Run, run
from tests.support import invariants, report
from tests.support.database import TestServer
from tests.support.invariants import Violations
from tests.support.proxy import Proxy
from tests.support.report import Live, Part
from trueup import DatabaseUnavailable

TITLE = "All faults, mixed at random"
CALM = (0.0, 0.6)  # seconds between two faults of one kind
MORE_EVERY = 3.0  # seconds between two loads of work
ENDS_WITHIN = timedelta(seconds=150)  # lease, poll, and a backlog on a busy machine
KINDS = ("quick", "transfer", "transfer_sync", "flaky", "slow", "deliver", "limited", "choosy", "fair", "rated")
NOUNS = {
    "jobs": "jobs of every kind",
    "rows": "reconcilers in all claim modes",
    "schedules": "a schedule for every second",
    "leases": "leases in PostgreSQL, by advisory lock and in Redis",
    "purges": "a purge",
    "scans": "a scan",
    "users": "users' own transactions over the same rows",
}


class Rampage:
    def __init__(self, seed: int, faults: Faults, crash: Run, rest: Others, parts: Sequence[Part]) -> None:
        self._seed = seed
        self._faults = faults
        self._crash = crash
        self._rest = rest
        self._parts = {part.name: part for part in parts}
        self._failed: list[BaseException] = []
        self._ended = threading.Event()

    def rage(self, seconds: float) -> None:
        """Faults of two kinds at a time, and more work all the while."""
        ends_at = time.monotonic() + seconds
        loops = {
            "processes": self._bringing("processes", self._faults.of_processes()),
            "surroundings": self._bringing("surroundings", self._faults.of_surroundings()),
            "work": self._loading(),
        }
        threads = [threading.Thread(target=self._until, args=[ends_at, once]) for once in loops.values()]
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
                job.enqueue_many_sync([(f"tenant {n % 5}" if job.kind == "fair" else n,) for n in range(count)])
                self._rest.more()
            except (psycopg.Error, DatabaseUnavailable):
                pass  # the server is away: what was not acknowledged may be there or not
            time.sleep(MORE_EVERY)

        return once

    def aftermath(self) -> None:
        """Peace, until everything has ended; then the proof of each noun."""
        at_peace = self._crash.now()
        self._rest.users.stop()
        for name, wait in (("jobs", self._crash.wait_ended), ("rows", self._rest.wait_settled)):
            try:
                wait(ENDS_WITHIN.total_seconds())
            except TimeoutError as error:
                self._parts[name].violations.append(f"I8: {error}")
        self._crash.workers.stop_all()
        self._rest.workers.stop_all()
        self._crash.app.close_sync()
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
        }
        for name, prove in proofs.items():
            looked_at, violations = prove()
            part = self._parts[name]
            part.checked["facts"] = looked_at
            part.violations += violations
            if not looked_at:
                part.void = "there was nothing to check"
        self._parts["jobs"].numbers = self._crash.states()


def rampage(seconds: float, seed: int, directory: Path, parts: Sequence[Part]) -> Faults:
    """Faults for so long, then peace until everything has ended. What came of it is in the parts."""
    with ExitStack() as stack:
        server = stack.enter_context(TestServer(directory / "pg", synchronous_commit="on", full_page_writes="on"))
        valkey = stack.enter_context(Valkey())
        urls = [stack.enter_context(server.database()) for _ in range(2)]
        proxies = [stack.enter_context(Proxy.before(url)) for url in urls]
        ways = [proxy.url(url) for proxy, url in zip(proxies, urls, strict=True)]
        settings = {"TRUEUP_STATEMENT_TIMEOUT": "2s", "TRUEUP_REDIS_URL": valkey.url}
        crash = stack.enter_context(run(urls[0], directory / "jobs", workers_url=ways[0], **settings))
        rng = random.Random(f"{seed} rows")
        rest = stack.enter_context(others(urls[1], directory / "rest", rng, workers_url=ways[1], **settings))
        choices = random.Random(f"{seed} faults")
        faults = Faults(choices, [crash.workers, rest.workers], server.cluster, proxies, valkey)
        ended = threading.Event()
        drawing = threading.Thread(target=_draw, args=[faults, parts, ended], daemon=True)
        drawing.start()
        try:
            faults.refill()
            this = Rampage(seed, faults, crash, rest, parts)
            this.rage(seconds)
            this.aftermath()
        finally:
            ended.set()
            drawing.join()
        return faults


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
        for each in ("jobs", "rest"):
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
