"""The jobs that a worker has in hand: those that wait for a runner, and those that run.

A data structure without I/O. It answers two questions: how many jobs the claimer may claim, and which job a runner takes next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from typing import Literal

from trueup.clock import elapsed
from trueup.durations import Rate
from trueup.jobs.job import ClaimedJob
from trueup.leases.lost import LostSignal
from trueup.work.jobs.pacing import Paced

CancelReason = Literal["stop", "shutdown", "lost"]
# Jobs that were in this many crashes run one at a time, so that one of them cannot keep taking the others down with its process.
CRASHES_TO_ISOLATE = 2

MAX_WAITING_BYTES = 64 * 1024 * 1024  # of arguments; while more than that waits, nothing is claimed

_rank = attrgetter("rank")


@dataclass(slots=True)
class RunningJob:
    """A job that runs, and the reason for its cancellation, if it was cancelled."""

    job: ClaimedJob
    task: asyncio.Task[None]
    started: float
    lost: LostSignal | None = None
    cancelled: CancelReason | None = None
    uncertain: bool = False  # its finishing transaction broke at the commit

    def must_end(self) -> bool:
        """Whether to wait for the handler although it was cancelled: if its job were released while it runs, the job would run twice."""
        return self.cancelled == "shutdown"

    def cancel(self, reason: CancelReason) -> None:
        if self.cancelled is None:
            self.cancelled = reason
            if self.lost is not None:
                self.lost.set()  # threads cannot be cancelled, only told
            self.task.cancel()


@dataclass
class Hand:
    concurrency: int
    queues: Mapping[str, int | None]  # how many jobs of each queue may run at once here; None: up to concurrency
    # By id and term: a handler that ignored the loss of its lease may still be here when the same job is claimed anew.
    running: dict[tuple[int, int], RunningJob] = field(default_factory=dict)
    _waiting: dict[str, deque[ClaimedJob]] = field(default_factory=dict)
    _isolated: deque[ClaimedJob] = field(default_factory=deque)
    _running_of: dict[str, int] = field(default_factory=dict)
    _isolated_runs: set[int] = field(default_factory=set)
    _turn: deque[str] = field(default_factory=deque)
    elapsed: Callable[[], float] = elapsed
    closed: bool = False  # the worker stops: no job starts, not even one that a claim under way still brings
    waiting: int = 0  # jobs in hand that have not started
    waiting_bytes: int = 0  # of their arguments
    _limited: int = 0  # those of them that were claimed through the lane of a limit
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # set while nothing runs
    paced: Paced = field(init=False)  # jobs with a rate limit, which start at given moments

    def __post_init__(self) -> None:
        self.idle.set()
        self.paced = Paced(self.elapsed)

    def expect(self, job: ClaimedJob, at: float, rate: Rate) -> None:
        """Take in a job that may start at this moment of `elapsed`, not sooner."""
        self.paced.add(job, at, rate)
        self._came(job)

    def late(self) -> list[ClaimedJob]:
        """Take out the jobs that have missed the moment of their rate."""
        return [self._went(job) for job in self.paced.late()]

    def put(self, jobs: Iterable[ClaimedJob], *, first: bool = False) -> None:
        """Take in the jobs of a claim, best rank first. `first` puts them before all waiting jobs: their limits count them as started."""
        by_queue: dict[str, list[ClaimedJob]] = {}
        for job in jobs:
            self._came(job)
            if job.crashes >= CRASHES_TO_ISOLATE:
                self._isolated.append(job)
            else:
                by_queue.setdefault(job.queue, []).append(job)
        for name, batch in by_queue.items():
            if name not in self._waiting:
                self._waiting[name] = deque()
                self._turn.append(name)
            waiting = self._waiting[name]
            if first:
                waiting.extendleft(reversed(batch))
            elif waiting and batch[0].rank < waiting[-1].rank:
                started = [job for job in waiting if job.lane != job.queue]
                plain = [job for job in waiting if job.lane == job.queue]
                self._waiting[name] = deque([*started, *merge(plain, batch, key=_rank)])
            else:
                waiting.extend(batch)

    def take(self) -> ClaimedJob | None:
        """The next job that may run now; queues take turns."""
        if self.closed:
            return None
        if self._isolated and not self._isolated_runs and self._may_run(self._isolated[0].queue):
            return self._went(self._isolated.popleft())
        if self._limited and (paced := self.paced.take(self._may_start)) is not None:
            return self._went(paced)
        for _ in range(len(self._turn)):
            name = self._turn[0]
            self._turn.rotate(-1)
            if self._waiting[name] and self._may_run(name):
                return self._went(self._waiting[name].popleft())
        return None

    def started(self, run: RunningJob) -> None:
        job = run.job
        self.running[job.id, job.term] = run
        self.idle.clear()
        self._running_of[job.queue] = self._running_of.get(job.queue, 0) + 1
        if job.crashes >= CRASHES_TO_ISOLATE:
            self._isolated_runs.add(job.id)

    def ended(self, run: RunningJob) -> None:
        job = run.job
        self.running.pop((job.id, job.term), None)
        if not self.running:
            self.idle.set()
        self._running_of[job.queue] -= 1
        self._isolated_runs.discard(job.id)

    def knows(self) -> set[tuple[int, int]]:
        """(id, term) of everything in hand, started or not."""
        return self.running.keys() | {(job.id, job.term) for job in self.in_hand()}

    def withdraw(self, job_id: int, term: int) -> ClaimedJob | None:
        """Take a job out that has not been started."""
        for job in self.in_hand():
            if job.id == job_id and job.term == term:
                self.paced.remove(job)
                for queue in (*self._waiting.values(), self._isolated):
                    if job in queue:
                        queue.remove(job)
                return self._went(job)
        return None

    def in_hand(self) -> list[ClaimedJob]:
        """Everything that has not been started, in no particular order between queues."""
        return [*(job for queue in self._waiting.values() for job in queue), *self._isolated, *self.paced]

    def take_all(self) -> list[ClaimedJob]:
        """Take out every job that has not been started."""
        jobs = self.in_hand()
        for queue in self._waiting.values():
            queue.clear()
        self._isolated.clear()
        self.paced.clear()
        self.waiting = self.waiting_bytes = self._limited = 0
        return jobs

    @property
    def waiting_plain(self) -> int:
        """How many jobs without limits wait here."""
        return self.waiting - self._limited

    def surplus(self, ahead: int) -> list[ClaimedJob]:
        """Take out jobs without limits, the last first, until as many are left as free runners need and `ahead` more.

        Runners that are free count, because a claim may have brought their jobs a moment ago: `room` would claim them again.
        """
        given: list[ClaimedJob] = []
        keep = ahead + self._starting()
        while self.waiting_plain > keep:
            longest = max(self._waiting.values(), key=len, default=deque())
            job = _pop_last_plain(longest)
            if job is None:
                return given
            given.append(self._went(job))
        return given

    def _starting(self) -> int:
        """How many jobs without limits free runners are about to start; jobs with limits start first."""
        free = self.concurrency - len(self.running)
        of_queues = 0
        for name, jobs in self._waiting.items():
            cap = self.queues.get(name)
            of_queues += len(jobs) if cap is None else max(0, min(len(jobs), cap - self._running_of.get(name, 0)))
        return max(0, min(free, of_queues) - self._limited)

    def stranded(self) -> list[ClaimedJob]:
        """Take out jobs with limits for which no runner is free."""
        given = []
        free = self.concurrency - len(self.running)
        for queue in self._waiting.values() if self._limited else ():
            for job in [job for job in queue if job.lane != job.queue]:
                free -= 1
                if free < 0:
                    queue.remove(job)
                    given.append(self._went(job))
        return given

    def lane_room(self, queue: str, ahead: int) -> int:
        """How many jobs of a lane could start at once, or very soon (`ahead`). They start before waiting jobs without limits."""
        cap = self.queues.get(queue)
        most = self.concurrency if cap is None else min(cap, self.concurrency)
        limited_of_queue = sum(job.queue == queue for job in self._limited_jobs()) if self._limited else 0
        of_queue = most + min(ahead, most) - self._running_of.get(queue, 0) - limited_of_queue
        of_all = self.concurrency + min(ahead, self.concurrency) - len(self.running) - self._limited
        return max(0, min(of_queue, of_all))

    def room(self, ahead: int, wanted: Collection[str]) -> dict[str, int]:
        """How many to claim for each of these queues, so that `ahead` jobs more than can run are in hand.

        Queues share evenly; with less room than queues, the first ones get it.
        """
        total = self.concurrency + ahead - len(self.running) - self.waiting
        if self.waiting_bytes >= MAX_WAITING_BYTES:
            return {}
        caps = {name: cap for name in wanted if (cap := self._claimable(name, ahead)) > 0}
        room: dict[str, int] = {}
        for left, (name, cap) in zip(range(len(caps), 0, -1), caps.items(), strict=True):
            share = min(cap, -(-total // left))
            if share > 0:
                room[name] = share
                total -= share
        return room

    def _claimable(self, queue: str, ahead: int) -> int:
        """How many more jobs of this queue its own concurrency allows in hand."""
        cap = self.queues[queue]
        if cap is None:
            return self.concurrency + max(ahead, 0)
        return cap + min(ahead, cap) - self._running_of.get(queue, 0) - len(self._waiting.get(queue, ()))

    def _limited_jobs(self) -> Iterator[ClaimedJob]:
        return (job for job in self.in_hand() if job.lane != job.queue)

    def _came(self, job: ClaimedJob) -> None:
        self.waiting += 1
        self.waiting_bytes += len(job.args)
        self._limited += job.lane != job.queue

    def _went(self, job: ClaimedJob) -> ClaimedJob:
        self.waiting -= 1
        self.waiting_bytes -= len(job.args)
        self._limited -= job.lane != job.queue
        return job

    def _may_start(self, job: ClaimedJob) -> bool:
        alone = job.crashes >= CRASHES_TO_ISOLATE
        return self._may_run(job.queue) and not (alone and self._isolated_runs)

    def _may_run(self, queue: str) -> bool:
        cap = self.queues.get(queue)
        return cap is None or self._running_of.get(queue, 0) < cap


def _pop_last_plain(jobs: deque[ClaimedJob]) -> ClaimedJob | None:
    """Take out the last job without limits. Those with limits stay in front of it, so it is at the end or near it."""
    for distance, job in enumerate(reversed(jobs), 1):
        if job.lane == job.queue:
            del jobs[-distance]
            return job
    return None
