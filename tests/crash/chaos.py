"""All faults, mixed at random, for a while: `python -m tests.crash.chaos --seconds 300 [--seed 7]`.

Workers are killed, stopped past their leases and started; the database is restarted, its sessions are ended, the network is
cut, silenced and slowed; jobs of every kind keep coming. At the end everything must have ended, once, and every invariant
must hold; otherwise the exit status is 1, and the seed and the violations are printed. The seed decides which faults come
and when they are asked for; how the processes interleave with them stays up to the machine.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psycopg

from tests.crash.run import Run, run
from tests.support import invariants
from tests.support.database import TestServer
from tests.support.processes import WorkerProcess
from tests.support.proxy import Proxy
from trueup.embedded.cluster import Cluster

WORKERS = 3
LEASE = 2.0  # seconds, as the fleet has it
CALM = (0.2, 1.5)  # seconds between two faults
ENDS_WITHIN = timedelta(seconds=120)  # lease, poll, and a backlog on a busy machine
KINDS = ("quick", "transfer", "transfer_sync", "flaky", "slow", "deliver", "limited", "choosy")


class Chaos:
    """What can go wrong, each as a method. Every fault is over when its method returns, but for its consequences."""

    def __init__(self, rng: random.Random, crash: Run, cluster: Cluster, proxy: Proxy) -> None:
        self._rng = rng
        self._crash = crash
        self._cluster = cluster
        self._proxy = proxy
        self.counts: Counter[str] = Counter()

    def once(self) -> None:
        """More work, a random fault, and a full fleet again."""
        self._enqueue()
        fault = self._rng.choice(self._faults())
        self.counts[fault.__name__] += 1
        fault()
        self.refill()

    def refill(self) -> None:
        for worker in self._crash.workers.crashed:
            raise AssertionError(f"worker {worker.pid} died by itself with {worker.status}:\n{worker.said}")
        while len(self._crash.workers.alive) < WORKERS:
            self._crash.workers.launch()

    def _faults(self) -> list[Callable[[], None]]:
        return [
            *(self.kill_worker, self.stop_past_the_lease, self.stop_briefly, self.end_worker_in_order),
            *(self.end_sessions, self.restart_fast, self.restart_immediate),
            *(self.cut_network, self.silence_network, self.slow_network, self.lose_a_reply),
        ]

    def _enqueue(self) -> None:
        job = getattr(self._crash.jobs, self._rng.choice(KINDS))
        job.enqueue_many_sync([(n,) for n in range(self._rng.randint(20, 200))])

    def _some_worker(self) -> WorkerProcess:
        return self._rng.choice(self._crash.workers.alive)

    def kill_worker(self) -> None:
        self._crash.workers.kill(self._some_worker())

    def stop_past_the_lease(self) -> None:
        self._stopped_for(LEASE + self._rng.uniform(0.2, 1))

    def stop_briefly(self) -> None:
        self._stopped_for(self._rng.uniform(0, LEASE))

    def _stopped_for(self, seconds: float) -> None:
        worker = self._some_worker()
        worker.send(signal.SIGSTOP)
        time.sleep(seconds)
        worker.send(signal.SIGCONT)

    def end_worker_in_order(self) -> None:
        worker = self._some_worker()
        worker.send(signal.SIGTERM)
        worker.wait()

    def end_sessions(self) -> None:
        with psycopg.connect(self._crash.url, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                " and application_name like 'trueup%%' and random() < %s and backend_type = 'client backend'",
                [self._rng.random()],
            )

    def restart_fast(self) -> None:
        self._cluster.restart("fast")

    def restart_immediate(self) -> None:
        self._cluster.restart("immediate")

    def cut_network(self) -> None:
        self._proxy.cut()
        time.sleep(self._rng.uniform(0, LEASE))
        self._proxy.heal()

    def silence_network(self) -> None:
        self._proxy.black_hole()
        time.sleep(self._rng.uniform(0, 2 * LEASE))
        self._proxy.heal()

    def slow_network(self) -> None:
        self._proxy.delay(self._rng.uniform(0, 0.2))
        time.sleep(self._rng.uniform(0, LEASE))
        self._proxy.heal()

    def lose_a_reply(self) -> None:
        moves = (b"-- claim:", b"-- complete:", b"-- retry:", b"-- snooze:", b"-- rescue:", b"COMMIT")
        loss = self._proxy.drop_next_reply(self._rng.choice(moves))
        deadline = time.monotonic() + 1
        while not loss.happened and time.monotonic() < deadline:
            time.sleep(0.01)
        self.counts["replies lost"] += loss.happened
        self._proxy.heal()


def rampage(seconds: float, seed: int, directory: Path) -> list[str]:
    """Faults for so long, then peace until everything has ended. Returns the violations."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        server = stack.enter_context(TestServer(directory / "pg", synchronous_commit="on", full_page_writes="on"))
        url = stack.enter_context(server.database())
        proxy = stack.enter_context(Proxy.before(url))
        crash = stack.enter_context(run(url, directory, workers_url=proxy.url(url), TRUEUP_STATEMENT_TIMEOUT="2s"))
        chaos = Chaos(rng, crash, server.cluster, proxy)
        chaos.refill()
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            chaos.once()
            time.sleep(rng.uniform(*CALM))
        print("faults:", ", ".join(f"{name} {count}" for name, count in sorted(chaos.counts.items())), flush=True)
        return aftermath(crash)


def aftermath(crash: Run) -> list[str]:
    at_peace = crash.now()
    try:
        crash.wait_ended(ENDS_WITHIN.total_seconds())
    except TimeoutError as error:
        return [f"I8: {error}", *invariants.check(crash.history())]
    crash.workers.stop_all()
    crash.app.close_sync()
    crash.enqueued = {row[0] for row in crash.query("select distinct job from recorded.changes")}
    found = crash.violations()
    found += invariants.everything_ends_in_time(crash.history(), fault_ended_at=at_peace, within=ENDS_WITHIN)
    print("jobs:", crash.states(), "attempts lost to crashes:", len(crash.events("job.rescued")), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="trueup-chaos-") as directory:
        found = rampage(given.seconds, given.seed, Path(directory))
    for violation in found[:100]:
        print(violation)
    print(f"{len(found)} violations, seed {given.seed}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
