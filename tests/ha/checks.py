"""What must hold across a failover, checked from what the clients recorded and what the new primary has.

Each check returns its violations as text. Positions are those of the write-ahead log. `fork` is where the new primary's
timeline left the old one: what was committed before it survived, what came after it did not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.support.invariants import Violations
from tests.support.journal import OwnConnection
from tests.support.recorder import Move

ACKNOWLEDGED, UNCONFIRMED, UNKNOWN = "acknowledged", "unconfirmed", "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """One commit that a client asked for. `after` is a position of the log at or after the commit, if it could be had."""

    n: int
    how: str  # "outbox": with the client's own row, in its own transaction; "plain": by trueup alone
    outcome: str
    began: float
    ended: float
    after: int | None = None
    inside: bool = False  # by a client on the old primary's side of a partition


@dataclass(frozen=True)
class Failover:
    """Everything the checks need to know about one part."""

    writes: Sequence[Write] = ()
    orders: frozenset[int] = frozenset()  # rows of clients that are there
    jobs: Mapping[int, int] = field(default_factory=dict)  # how many jobs there are for each write
    live: Sequence[tuple[int, str, str]] = ()  # id, kind and state of jobs that have not ended
    journal: Sequence[OwnConnection] = ()
    moves: Sequence[Move] = ()
    done: frozenset[tuple[int, int]] = frozenset()  # ids of jobs, and the terms under which they were done
    exact: bool = True  # whether every acknowledged commit is on the new primary, by the cluster's own promise
    seen_is_kept: bool = (
        True  # whether what could be read on the old primary is there, too: not when waits were cancelled
    )
    fork: int | None = None

    def lost(self) -> list[Write]:
        """Acknowledged, and not there."""
        return [each for each in self.writes if each.outcome == ACKNOWLEDGED and not self.jobs.get(each.n)]

    def undone(self) -> set[tuple[int, int]]:
        """Runs that a worker has taken for done and that are not on the new primary: the job was run again, or is lost."""
        running: dict[tuple[int, int], int] = {}
        said: set[tuple[int, int]] = set()
        for line in self.journal:
            if line.get("event") == "job.started":
                running[line["process"], line["job_id"]] = line["term"]
            elif line.get("event") == "job.completed":
                said.add((line["job_id"], running[line["process"], line["job_id"]]))
        return said - self.done


def acknowledged_is_there(failover: Failover) -> Violations:
    """F1: what was acknowledged is there; or, if the cluster does not promise that, lies behind the fork."""
    found = []
    for write in failover.lost():
        explained = failover.fork is not None and (write.after is None or write.after > failover.fork)
        if failover.exact or not explained:
            place = "nowhere" if write.after is None else f"at {write.after:X}"
            fork = "none" if failover.fork is None else f"{failover.fork:X}"
            found.append(f"F1: write {write.n} ({write.how}) was acknowledged and is lost: {place}, fork {fork}")
    return found


def finishes_are_there(failover: Failover) -> Violations:
    """F2: a job that a worker has taken for done is done, where the cluster promises that."""
    if not failover.exact or not failover.seen_is_kept:
        return []
    return [f"F2: job {job} was said to be completed under term {term}" for job, term in sorted(failover.undone())]


def outbox_is_whole(failover: Failover) -> Violations:
    """F3 (I12): of a client's row and the job of the same transaction, both are there or neither is."""
    found = []
    for write in failover.writes:
        jobs = failover.jobs.get(write.n, 0)
        if jobs > 1:
            found.append(f"F3: write {write.n} has {jobs} jobs")
        if write.how == "outbox" and (write.n in failover.orders) != (jobs > 0):
            found.append(
                f"F3: write {write.n} has {jobs} jobs, and its row is {write.n in failover.orders and 'there'}"
            )
    return found


def tokens_grow(failover: Failover) -> Violations:
    """F4 (I3): fencing tokens of a lease grow from holder to holder, and no two processes ever had the same one."""
    used: dict[str, list[tuple[int, int]]] = defaultdict(list)  # (term, process), by first use
    for line in failover.journal:
        if "held" in line and (line["term"], line["process"]) not in used[line["held"]]:
            used[line["held"]].append((line["term"], line["process"]))
    found = []
    for name, holders in used.items():
        found += [
            f"F4: lease {name}: token {later} of process {process} was used after {earlier}"
            for (earlier, _), (later, process) in pairwise(holders)
            if later <= earlier
        ]
    return found


def claims_are_never_shared(failover: Failover) -> Violations:
    """F5 (I3): no term of a job was given to two runs, not even where the first claim was lost in the failover."""
    runs: dict[tuple[int, int], set[int]] = defaultdict(set)
    for line in failover.journal:
        if line.get("event") == "job.started":
            runs[line["job_id"], line["term"]].add(line["process"])
    found = [
        f"F5: job {job} was run under term {term} by {len(by)} processes"
        for (job, term), by in runs.items()
        if len(by) > 1
    ]
    return found + list(_terms_reused(failover, runs))


def _terms_reused(failover: Failover, runs: Mapping[tuple[int, int], object]) -> Iterator[str]:
    """A claim that the new primary has forgotten must be older than all that it has made of the same job since."""
    known = {(move.job, move.term): move for move in failover.moves if move.after == "running"}
    newest: dict[int, int] = defaultdict(int)
    for job, term in known:
        newest[job] = max(newest[job], term)
    for job, term in runs:
        if (job, term) not in known and job in newest and newest[job] <= term:
            yield f"F5: term {term} of job {job} is forgotten, and the newest since is {newest[job]}"


def nothing_stays_live(failover: Failover) -> Violations:
    """F6 (I8): when the cluster is back and the backlog worked off, no job is running or waits."""
    return [f"F6: job {job} ({kind}) is still {state}" for job, kind, state in failover.live]


CHECKS: Mapping[str, Callable[[Failover], Violations]] = {
    "F1 acknowledged": acknowledged_is_there,
    "F2 finishes": finishes_are_there,
    "F3 outbox": outbox_is_whole,
    "F4 tokens": tokens_grow,
    "F5 terms": claims_are_never_shared,
    "F6 live": nothing_stays_live,
}


def facts(failover: Failover) -> dict[str, int]:
    """How many facts each check has looked at: a check over nothing proves nothing."""
    completed = [line for line in failover.journal if line.get("event") == "job.completed"]
    started = [line for line in failover.journal if line.get("event") == "job.started"]
    return {
        "F1 acknowledged": sum(write.outcome == ACKNOWLEDGED for write in failover.writes),
        "F2 finishes": len(completed) if failover.exact and failover.seen_is_kept else 0,
        "F3 outbox": sum(write.how == "outbox" for write in failover.writes),
        "F4 tokens": len({(line["held"], line["term"]) for line in failover.journal if "held" in line}),
        "F5 terms": len(started),
        "F6 live": len(failover.done),
    }
