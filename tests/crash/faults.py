"""The faults of `make chaos`, each as a method that says whether it landed. Each is over when its method returns, but for its
consequences."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psycopg

from apps.servers.valkey import Valkey
from tests.support.pgbouncer import PgBouncer
from tests.support.processes import Fleet, WorkerProcess
from tests.support.proxy import Proxy
from trueup.embedded.cluster import Cluster

LEASE = 2.0  # seconds, as the fleets have it
REPLIES = (b"-- claim:", b"-- complete:", b"-- retry:", b"-- snooze:", b"-- rescue:", b"-- renew", b"COMMIT")
END_SESSIONS = """
select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
 where application_name like 'trueup%%' and random() < %s and backend_type = 'client backend'
"""

Fault = Callable[[], bool]


class Faults:
    """`asked` and `landed` count them by name. Faults of processes and of the surroundings may come at the same time."""

    def __init__(
        self,
        rng: random.Random,
        fleets: Sequence[Fleet],
        cluster: Cluster,
        proxies: Sequence[Proxy],
        pooler: PgBouncer,
        valkey: Valkey,
    ) -> None:
        self._rng = rng
        self.fleets = fleets
        self._cluster = cluster
        self._proxies = proxies
        self._pooler = pooler
        self._valkey = valkey
        self._processes = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.landed: Counter[str] = Counter()

    def of_processes(self) -> Sequence[Fault]:
        return (self.kill_worker, self.stop_past_the_lease, self.stop_briefly, self.end_worker_in_order)

    def of_surroundings(self) -> Sequence[Fault]:
        return (
            *(self.end_sessions, self.end_sessions, self.restart_fast, self.restart_immediate),
            *(self.cut_network, self.silence_network, self.slow_network),
            *(self.lose_a_reply, self.lose_a_reply, self.flush_redis, self.restart_redis),
            *(self.kill_pooler, self.restart_pooler),
        )

    def bring(self, rng: random.Random, among: Sequence[Fault]) -> None:
        fault = rng.choice(among)
        name = fault.__name__.replace("_", " ")
        self.asked[name] += 1
        self.landed[name] += fault()

    def refill(self) -> None:
        """A full fleet again. Raises AssertionError when a worker has died by itself."""
        with self._processes:
            for fleet in self.fleets:
                for worker in fleet.crashed:
                    raise AssertionError(f"worker {worker.pid} died by itself with {worker.status}:\n{worker.said}")
                while len(fleet.alive) < fleet.size:
                    fleet.launch()

    # -- processes ----------------------------------------------------------------------------------------------------

    def _some(self) -> tuple[Fleet, WorkerProcess] | None:
        fleet = self._rng.choice(self.fleets)
        alive = fleet.alive
        return (fleet, self._rng.choice(alive)) if alive else None

    def kill_worker(self) -> bool:
        some = self._some()
        if some is not None:
            with self._processes:
                some[0].kill(some[1])
        return some is not None

    def stop_past_the_lease(self) -> bool:
        return self._stopped_for(LEASE + self._rng.uniform(0.2, 1))

    def stop_briefly(self) -> bool:
        return self._stopped_for(self._rng.uniform(0, LEASE))

    def _stopped_for(self, seconds: float) -> bool:
        some = self._some()
        if some is None:
            return False
        some[1].send(signal.SIGSTOP)
        time.sleep(seconds)
        some[1].send(signal.SIGCONT)
        return some[1].status is None

    def end_worker_in_order(self) -> bool:
        some = self._some()
        if some is None:
            return False
        some[1].send(signal.SIGTERM)
        some[1].wait()
        return True

    # -- the database -------------------------------------------------------------------------------------------------

    def end_sessions(self) -> bool:
        with psycopg.connect(self._cluster.url(), autocommit=True) as connection:
            row = connection.execute(END_SESSIONS, [self._rng.random()]).fetchone()
        return bool(row and row[0])

    def restart_fast(self) -> bool:
        self._cluster.restart("fast")
        return True

    def restart_immediate(self) -> bool:
        self._cluster.restart("immediate")
        return True

    # -- the network --------------------------------------------------------------------------------------------------

    def cut_network(self) -> bool:
        return self._impaired(Proxy.cut, self._rng.uniform(0, LEASE))

    def silence_network(self) -> bool:
        return self._impaired(Proxy.black_hole, self._rng.uniform(0, 2 * LEASE))

    def slow_network(self) -> bool:
        delay = self._rng.uniform(0, 0.2)
        return self._impaired(lambda proxy: proxy.delay(delay), self._rng.uniform(0, LEASE))

    def _impaired(self, impair: Callable[[Proxy], None], seconds: float) -> bool:
        proxy = self._rng.choice(self._proxies)
        connected = proxy.connections
        impair(proxy)
        time.sleep(seconds)
        proxy.heal()
        return connected > 0

    def lose_a_reply(self) -> bool:
        proxy = self._rng.choice(self._proxies)
        loss = proxy.drop_next_reply(self._rng.choice(REPLIES))
        deadline = time.monotonic() + 1
        while not loss.happened and time.monotonic() < deadline:
            time.sleep(0.01)
        proxy.heal()
        return loss.happened

    # -- the pooler ---------------------------------------------------------------------------------------------------

    def kill_pooler(self) -> bool:
        self._pooler.kill()
        time.sleep(self._rng.uniform(0, LEASE))
        self._pooler.start()
        return True

    def restart_pooler(self) -> bool:
        self._pooler.restart()
        return True

    # -- Redis --------------------------------------------------------------------------------------------------------

    def flush_redis(self) -> bool:
        held = bool(self._valkey.keys())
        self._valkey.flush()
        return held

    def restart_redis(self) -> bool:
        self._valkey.stop()
        time.sleep(self._rng.uniform(0, LEASE))
        self._valkey.start()
        return True
