"""What each notification wakes in a worker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from trueup.jobs.limits import LANE_PREFIX
from trueup.jobs.registry import Registry
from trueup.work.housekeeping import Housekeeping
from trueup.work.jobs.services import JobServices
from trueup.work.rows.services import RowServices


@dataclass(frozen=True, slots=True)
class Wakes:
    jobs: JobServices
    housekeeping: Housekeeping
    rows: RowServices
    registry: Registry
    queues: Collection[str]

    def work(self, lane: str, seconds: float) -> None:
        if self._serves(lane):
            self.jobs.hints.hear(lane, timedelta(seconds=seconds))
        if lane.startswith(LANE_PREFIX):
            self.housekeeping.declarer.hear(lane)

    def _serves(self, lane: str) -> bool:
        own = lane.startswith(LANE_PREFIX) and self.registry.get(lane.removeprefix(LANE_PREFIX)) is not None
        return own or lane in self.queues

    def stop(self) -> None:
        self.housekeeping.stopper.wake()

    def schedules(self) -> None:
        self.housekeeping.ticker.wake()
        self.housekeeping.declarer.hurry()

    def reconcilers(self) -> None:
        self.rows.wake()

    def listening(self, listening: bool) -> None:
        self.jobs.claimer.listening = listening
        if listening:
            self.jobs.hints.look()  # a notification may have been missed meanwhile
            self.housekeeping.ticker.wake()
            self.housekeeping.stopper.wake()
