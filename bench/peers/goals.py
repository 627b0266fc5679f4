"""What trueup has set itself beside its peers, and how far it got. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.peers.contestants import GRAPHILE, PGQUEUER, is_ours
from bench.peers.measure import Figures

DRAIN, BULK = "drain", "bulk enqueue"
ONE_BY_ONE, BY_CALLERS = "one-by-one enqueue", "enqueue by 100 callers"
AT_LEAST = (  # times as much as a peer
    (DRAIN, GRAPHILE, 1.3),
    (DRAIN, PGQUEUER, 2.8),
    (BULK, PGQUEUER, 2.5),
    (ONE_BY_ONE, PGQUEUER, 1.2),
    (BY_CALLERS, PGQUEUER, 5.0),
)
CPU = 0.9  # times a peer's, client and server together
WAL_BYTES = 900.0  # of a job's run
P99_MS = 6.0
IDLE_PER_S = 1.0


@dataclass(frozen=True)
class Verdict:
    who: str
    goal: str
    reached: float
    met: bool


def rates(figures: Figures) -> dict[str, list[float]]:
    """Jobs per second, round by round, by kind of work."""
    return {DRAIN: figures.drain, BULK: figures.bulk, ONE_BY_ONE: figures.one_by_one, BY_CALLERS: figures.by_callers}


def verdicts(figures: Mapping[str, Figures]) -> Iterator[Verdict]:
    """One per goal and way of running trueup, as far as the peers it names were measured."""
    ours = {name: one for name, one in figures.items() if is_ours(name)}
    peers = {name: one for name, one in figures.items() if name not in ours}
    for who, mine in ours.items():
        for work, peer, least in AT_LEAST:
            if peer in peers:
                ratio = statistics.median(rates(mine)[work]) / statistics.median(rates(peers[peer])[work])
                yield Verdict(who, f"{work} ≥ {least:g} × {peer}", ratio, ratio >= least)
        if GRAPHILE in peers:
            ratio = _cpu(mine) / _cpu(peers[GRAPHILE])
            yield _at_most(who, f"CPU per job ≤ {CPU:g} × {GRAPHILE}", ratio, CPU)
        yield _at_most(who, f"WAL per job ≤ {WAL_BYTES:g} B", mine.costs().wal, WAL_BYTES)
        if peers:
            for what, latency in (("pick-up", Figures.latency), ("urgent", Figures.urgent_latency)):
                best = min(peers, key=lambda name: latency(peers[name], 0.5))
                ratio = latency(mine, 0.5) / latency(peers[best], 0.5)
                yield _at_most(who, f"{what} p50 ≤ 1 × {best}", ratio, 1)
        yield _at_most(who, f"pick-up p99 ≤ {P99_MS:g} ms", mine.latency(0.99), P99_MS)
        yield _at_most(who, f"idle ≤ {IDLE_PER_S:g} statement/s", mine.idle, IDLE_PER_S)


def _at_most(who: str, goal: str, reached: float, most: float) -> Verdict:
    return Verdict(who, goal, reached, reached <= most)


def _cpu(figures: Figures) -> float:
    costs = figures.costs()
    return costs.client + costs.server
