"""How many jobs a worker may claim of kinds that run on an executor: as many as the executor has free places.

A job that waits inside an executor's pool could run on another worker. So the claimer does not claim kinds whose pool is full, and
releases jobs at once for which a claim found no place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trueup.jobs.job import ClaimedJob
from trueup.jobs.registry import Registry
from trueup.work.executors.pools import ExecutorPool, Pools
from trueup.work.jobs.hand import Hand


class Places:
    def __init__(self, registry: Registry, hand: Hand, pools: Pools) -> None:
        self._registry = registry
        self._hand = hand
        self._pools = pools
        self._seen = 0
        self._of: dict[str, ExecutorPool] = {}
        self._crowded = False  # the last claim brought more than fits

    def full(self) -> set[str]:
        """The kinds whose pool is full: they are not claimed now."""
        return {kind for kind, pool in self._offloaded().items() if self._free(pool) <= 0}

    def free(self, kind: str, most: int) -> int:
        """How many jobs of this kind to claim, at most `most`."""
        pool = self._offloaded().get(kind)
        return most if pool is None else max(0, min(most, self._free(pool)))

    def bounded(self, most: int) -> int:
        """How many jobs to claim from a queue: after a claim that brought too many, no more than there are free places, if any."""
        if not self._crowded:
            return most
        free = sum(max(0, self._free(pool)) for pool in set(self._offloaded().values()))
        return min(most, free) if free else most

    def surplus(self, jobs: Sequence[ClaimedJob]) -> list[ClaimedJob]:
        """The jobs of a claim, not yet in hand, for which there is no place."""
        offloaded = self._offloaded()
        left = {pool: self._free(pool) for pool in set(offloaded.values())} if offloaded else {}
        surplus = []
        for job in jobs:
            pool = offloaded.get(job.kind)
            if pool is not None:
                left[pool] -= 1
                if left[pool] < 0:
                    surplus.append(job)
        self._crowded = bool(surplus)
        return surplus

    def _offloaded(self) -> dict[str, ExecutorPool]:
        """The kinds that run on an executor whose number of places is known."""
        if len(self._registry) != self._seen:  # kinds are only ever added
            self._seen = len(self._registry)
            self._of = {job.kind: self._pools.of(job) for job in self._registry if job.executor is not None}
        return {kind: pool for kind, pool in self._of.items() if pool.places is not None} if self._of else {}

    def _free(self, pool: ExecutorPool) -> int:
        kinds = {kind for kind, other in self._offloaded().items() if other is pool}
        held = Counter(run.job.kind for run in self._hand.running.values())
        held.update(job.kind for job in self._hand.in_hand())
        return (pool.places or 0) - sum(held[kind] for kind in kinds)
