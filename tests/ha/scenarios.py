"""The faults of a cluster, each with the proof that it landed and of what must hold afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.ha.load import load
from tests.support.patroni import HighAvailability
from tests.support.report import DidNotLand, Part
from tests.support.waiting import wait_until

NOTICED_BY_TCP = 15  # seconds without an answer, as the connections of trueup have it (tcp_user_timeout)
LAG_FOR = 3.0  # seconds of writes that no standby gets
WAITING = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
CANCEL = "select count(*) filter (where pg_cancel_backend(pid)) from pg_stat_activity where wait_event = 'SyncRep'"
KNOWN = "select distinct (args ->> 'n')::bigint from (select kind, args from trueup.jobs union all select kind, args from trueup.history) as every where kind = 'transfer'"


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[[HighAvailability, Part, Path], None]


def switchover(ha: HighAvailability, part: Part, directory: Path) -> None:
    with load(ha, part, directory, synchronous=True) as this:
        old = ha.wait_whole()
        before = old.timeline()
        this.warm_up()
        candidate = ha.synchronous_standbys()[0]
        this.fault(f"switchover from {old.name} to {candidate.name}")
        old.asks("/switchover", {"leader": old.name, "candidate": candidate.name}, method="POST", within=60)
        new = this.promoted(old)
        landed(new is candidate and new.timeline() > before, "the candidate is the primary on a new timeline")
        this.written_again()
        this.drain()
        this.prove()


def kill(ha: HighAvailability, part: Part, directory: Path) -> None:
    with load(ha, part, directory, synchronous=True) as this:
        old = ha.wait_whole()
        before = old.timeline()
        this.warm_up()
        this.fault(f"kill -9 of {old.name}, PostgreSQL and Patroni")
        old.kill()
        landed(not old.server_runs and not old.patroni_runs, "the primary is dead")
        new = this.promoted(old)
        landed(new.timeline() > before, "another node was promoted")
        this.written_again()
        old.start()
        this.drain()
        this.prove()


def partition(ha: HighAvailability, part: Part, directory: Path, *, synchronous: bool = True) -> None:
    """The primary's side has a client of its own, which writes on for as long as it is let."""
    with load(ha, part, directory, synchronous=synchronous) as this:
        old = ha.wait_whole()
        before = old.timeline()
        this.warm_up()
        this.fault(f"{old.name} is cut off from clients, standbys and etcd; one client is left on its side")
        old.isolate()
        this.producers.start_inside(old.direct_url(this.database))
        isolated_at = time.monotonic()
        new = this.promoted(old)
        landed(new.timeline() > before, "another node was promoted")
        # What the kernel would do to connections that get no answer; a proxy acknowledges what it gets, and says nothing.
        time.sleep(max(0.0, NOTICED_BY_TCP - (time.monotonic() - isolated_at)))
        old.clients.reset()
        this.saw("TCP gives up on the old connections")
        this.written_again()
        old.rejoin()
        this.saw("the network is healed")
        inside = [write for write in list(this.producers.writes) if write.inside]
        this.drain()
        failover = this.prove()
        landed(bool(inside), "the client on the old primary's side has tried to write")
        part.numbers["writes on the old primary's side"] = len(inside)
        part.numbers["of these acknowledged"] = len(this.producers.acknowledged(inside=True))
        if not synchronous:
            landed(bool(failover.lost()), "an acknowledged write was lost")


def lagging(ha: HighAvailability, part: Part, directory: Path) -> None:
    with load(ha, part, directory, synchronous=False) as this:
        old = ha.wait_whole()
        this.warm_up()
        this.fault(f"{old.name} streams to no standby any more, and clients write on")
        old.peers.black_hole()
        time.sleep(LAG_FOR)
        behind = old.behind(ha.others(old))
        this.saw(f"kill -9 of {old.name}; the standbys are {behind} bytes behind")
        old.kill()
        old.peers.cut()
        landed(behind > 0, "the standbys lag")
        this.promoted(old)
        this.written_again()
        old.rejoin()
        old.start()
        this.drain()
        failover = this.prove()
        part.numbers["bytes of the log that were not replicated"] = behind
        landed(bool(failover.lost()), "an acknowledged write was lost")


def cancelled_wait(ha: HighAvailability, part: Part, directory: Path) -> None:
    """Commits wait for a standby that does not answer, and the waits are cancelled: committed here, and nowhere else."""
    with load(ha, part, directory, synchronous=True) as this:
        this.seen_is_kept = False
        old = ha.wait_whole()
        this.warm_up()
        this.fault(f"{old.name} streams to no standby any more: commits wait")
        old.peers.black_hole()
        wait_until(lambda: old.query(WAITING)[0][0] > 2, "commits wait for a standby", timeout=20, pause=0.05)
        cancelled = 0
        for _ in range(5):
            cancelled += old.query(CANCEL)[0][0]
            time.sleep(0.5)
        known = {row[0] for row in old.query(KNOWN, database=this.database)}
        this.saw(f"{cancelled} waits were cancelled; kill -9 of {old.name}")
        old.kill()
        old.peers.cut()
        this.promoted(old)
        this.written_again()
        old.rejoin()
        old.start()
        this.drain()
        failover = this.prove()
        gone = {n for n in known if not failover.jobs.get(n)}
        part.numbers["waits cancelled"] = cancelled
        part.numbers["commits seen on the old primary and lost"] = len(gone)
        part.numbers["of these with a warning to the client"] = sum(
            write.n in gone and write.outcome == "unconfirmed" for write in failover.writes
        )
        landed(bool(gone), "a commit that was seen on the old primary only is lost")


def landed(so: bool, what: str) -> None:
    if not so:
        raise DidNotLand(f"not seen: {what}")


def asynchronous_partition(ha: HighAvailability, part: Part, directory: Path) -> None:
    partition(ha, part, directory, synchronous=False)


SCENARIOS = (
    Scenario("switchover", "(a) switchover, synchronous", switchover),
    Scenario("kill", "(b) kill -9 of the primary, synchronous", kill),
    Scenario("partition", "(c) partition of the primary, synchronous", partition),
    Scenario("partition-async", "(c) partition of the primary, asynchronous", asynchronous_partition),
    Scenario("lagging", "(d) a lagging standby is promoted, asynchronous", lagging),
    Scenario("cancelled-wait", "(e) cancelled waits for the standby, synchronous", cancelled_wait),
)
