"""Jobs with a rate limit: each waits in hand until the moment at which its lane lets it start.

The database spaces these moments. A busy process may be late for several of them and would then start their jobs all at once, so
the starts are spaced here again, by the same rule, when a runner takes a job. A job that is late by more than the spacing of its
rate is released, so that it does not start beside jobs that other workers start on time. A process that is always late still
starts a job now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trueup.durations import Rate
from trueup.jobs.job import ClaimedJob

MIN_TOLERANCE = 0.1  # seconds a start may be late; with a slower rate, its spacing
MAX_GIVEN_BACK = 5  # times in a row that late jobs are released; then one may start late
MAX_WAIT = 1.0  # more seconds for a runner to become free for that job; then it is released, too


@dataclass(slots=True)
class _Lane:
    spacing: float
    burst: int
    expected: deque[tuple[float, ClaimedJob]] = field(default_factory=deque)
    next_start: float = float("-inf")  # evenly spaced; a burst may be that much earlier
    given_back: int = 0  # how often, since the last start

    def ready_at(self) -> float:
        """When its first job may start."""
        return max(self.expected[0][0], self.next_start - (self.burst - 1) * self.spacing)

    def start(self, now: float) -> ClaimedJob:
        self.next_start = max(self.next_start, now - (self.burst - 1) * self.spacing) + self.spacing
        self.given_back = 0
        return self.expected.popleft()[1]

    def is_late(self, now: float) -> bool:
        """Whether its first job has missed its moment and is to be released."""
        tolerance = max(self.spacing, MIN_TOLERANCE)
        if self.given_back >= MAX_GIVEN_BACK:
            tolerance += MAX_WAIT
        return bool(self.expected) and now - self.expected[0][0] > tolerance

    def late(self, now: float) -> list[ClaimedJob]:
        """Take out the jobs that have missed their moment."""
        late: list[ClaimedJob] = []
        while self.is_late(now):
            late.append(self.expected.popleft()[1])
        self.given_back += bool(late)
        return late


class Paced:
    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._lanes: dict[str, _Lane] = {}

    def add(self, job: ClaimedJob, at: float, rate: Rate) -> None:
        """Take in a job that may start at this moment, not sooner."""
        spacing = rate.spacing.total_seconds()
        lane = self._lanes.setdefault(job.lane, _Lane(spacing, rate.burst))
        lane.spacing, lane.burst = spacing, rate.burst
        lane.expected.append((at, job))

    def take(self, may_run: Callable[[ClaimedJob], bool]) -> ClaimedJob | None:
        """Take out a job whose moment has come; None when there is none."""
        now = self._elapsed()
        for lane in self._lanes.values():
            if lane.expected and lane.ready_at() <= now and not lane.is_late(now) and may_run(lane.expected[0][1]):
                return lane.start(now)
        return None

    def any_late(self) -> bool:
        now = self._elapsed()
        return any(lane.is_late(now) for lane in self._lanes.values())

    def late(self) -> list[ClaimedJob]:
        """Take out the jobs that have missed their moment."""
        now = self._elapsed()
        return [job for lane in self._lanes.values() for job in lane.late(now)]

    def ready(self) -> int:
        """How many jobs may start now."""
        now = self._elapsed()
        return sum(
            min(sum(at <= now for at, _ in lane.expected), lane.burst)
            for lane in self._lanes.values()
            if lane.expected and lane.ready_at() <= now
        )

    def next_in(self) -> float | None:
        """Seconds until more jobs may start than now; None when no job waits."""
        now = self._elapsed()
        lanes = [lane for lane in self._lanes.values() if lane.expected]
        return min((max(lane.ready_at() - now, 0.0) or lane.spacing for lane in lanes), default=None)

    def remove(self, job: ClaimedJob) -> None:
        for lane in self._lanes.values():
            lane.expected = deque(each for each in lane.expected if each[1] is not job)

    def clear(self) -> None:
        for lane in self._lanes.values():
            lane.expected.clear()

    def __iter__(self) -> Iterator[ClaimedJob]:
        return (job for lane in self._lanes.values() for _, job in lane.expected)
