"""The jobs a worker has in hand: those that wait here for a runner, and those that run.

Kept apart from the runners and the claimer so that "how much may we claim" and "what runs next" are plain questions to
plain data.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trueup.jobs.job import ClaimedJob
from trueup.lost import Lost

CancelReason = Literal["stop", "shutdown", "lost"]
CRASHES_TO_ISOLATE = (
    2  # jobs that were in this many crashes run one at a time: a killer must not take innocents along for ever
)


@dataclass(slots=True)
class Run:
    """A job being run, and why it was cancelled, if it was."""

    job: ClaimedJob
    task: asyncio.Task[None]
    started: float
    lost: Lost | None = None
    cancelled: CancelReason | None = None
    uncertain: bool = False  # its finishing transaction broke at the commit

    def must_end(self) -> bool:
        """Whether it is waited for although it was cancelled: handed on while it still runs, its job would run twice at once."""
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
    queues: Mapping[str, int | None]  # how many of each queue may run at once here; None: up to concurrency
    # By id and term: a handler that ignored the loss of its lease may still be here when the same job is claimed anew.
    running: dict[tuple[int, int], Run] = field(default_factory=dict)
    _waiting: dict[str, deque[ClaimedJob]] = field(default_factory=dict)
    _isolated: deque[ClaimedJob] = field(default_factory=deque)
    _running_of: dict[str, int] = field(default_factory=dict)
    _isolated_runs: set[int] = field(default_factory=set)
    _turn: deque[str] = field(default_factory=deque)
    _expected: dict[int, ClaimedJob] = field(default_factory=dict)
    closed: bool = False  # the worker stops: nothing is started any more, also not what a claim under way still brings
    waiting: int = 0  # how many are in hand and not started
    _limited: int = 0  # those of them that came through a lane of their own
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # set while nothing runs

    def __post_init__(self) -> None:
        self.idle.set()

    def expect(self, job: ClaimedJob) -> None:
        """A job that is ours and may start a moment from now."""
        self._expected[job.id] = job
        self._came(job)

    def arrived(self, job: ClaimedJob) -> bool:
        """Its moment has come: it is the next of its queue. False when it is no longer ours."""
        if self._expected.get(job.id) is not job:
            return False
        del self._expected[job.id]
        self._went(job)
        self.put([job], first=True)
        return True

    def put(self, jobs: Iterable[ClaimedJob], *, first: bool = False) -> None:
        """`first`: before those that wait already, for jobs whose limits count them as started."""
        for job in jobs:
            self._came(job)
            if job.crashes >= CRASHES_TO_ISOLATE:
                self._isolated.append(job)
            else:
                queue = self._waiting.get(job.queue)
                if queue is None:
                    queue = self._waiting[job.queue] = deque()
                    self._turn.append(job.queue)
                if first:
                    queue.appendleft(job)
                else:
                    queue.append(job)

    def take(self) -> ClaimedJob | None:
        """The next job that may run now; queues take turns."""
        if self.closed:
            return None
        if self._isolated and not self._isolated_runs and self._may_run(self._isolated[0].queue):
            return self._went(self._isolated.popleft())
        for _ in range(len(self._turn)):
            name = self._turn[0]
            self._turn.rotate(-1)
            if self._waiting[name] and self._may_run(name):
                return self._went(self._waiting[name].popleft())
        return None

    def started(self, run: Run) -> None:
        job = run.job
        self.running[job.id, job.term] = run
        self.idle.clear()
        self._running_of[job.queue] = self._running_of.get(job.queue, 0) + 1
        if job.crashes >= CRASHES_TO_ISOLATE:
            self._isolated_runs.add(job.id)

    def ended(self, run: Run) -> None:
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
                self._expected.pop(job_id, None)
                for queue in (*self._waiting.values(), self._isolated):
                    if job in queue:
                        queue.remove(job)
                return self._went(job)
        return None

    def in_hand(self) -> list[ClaimedJob]:
        """Everything that has not been started, in no particular order between queues."""
        return [*(job for queue in self._waiting.values() for job in queue), *self._isolated, *self._expected.values()]

    def take_all(self) -> list[ClaimedJob]:
        """Everything that has not been started; it is no longer in hand."""
        jobs = self.in_hand()
        for queue in self._waiting.values():
            queue.clear()
        self._isolated.clear()
        self._expected.clear()
        self.waiting = self._limited = 0
        return jobs

    def lane_room(self, queue: str, ahead: int) -> int:
        """How many jobs with limits could start at once, or (with `ahead`) very soon: they go before the plain ones that wait."""
        cap = self.queues.get(queue)
        most = self.concurrency if cap is None else min(cap, self.concurrency)
        limited_of_queue = sum(job.queue == queue for job in self._limited_jobs()) if self._limited else 0
        of_queue = most + min(ahead, most) - self._running_of.get(queue, 0) - limited_of_queue
        of_all = self.concurrency + min(ahead, self.concurrency) - len(self.running) - self._limited
        return max(0, min(of_queue, of_all))

    def room(self, ahead: int) -> dict[str, int]:
        """How many to claim for each queue, so that `ahead` jobs more than can run are in hand. Queues share evenly."""
        total = self.concurrency + ahead - len(self.running) - self.waiting
        names = list(self.queues)
        if total <= 0 or not names:
            return {}
        if total < len(names):
            self._rotate(names)
            names = list(self.queues)[:total]
        share = -(-total // len(names))
        room = {}
        for name in names:
            cap = self.queues[name]
            held = self._running_of.get(name, 0) + len(self._waiting.get(name, ()))
            limit = share if cap is None else min(share, cap + min(ahead, cap) - held)
            if limit > 0:
                room[name] = limit
        return room

    def _limited_jobs(self) -> Iterator[ClaimedJob]:
        return (job for job in self.in_hand() if job.lane != job.queue)

    def _came(self, job: ClaimedJob) -> None:
        self.waiting += 1
        self._limited += job.lane != job.queue

    def _went(self, job: ClaimedJob) -> ClaimedJob:
        self.waiting -= 1
        self._limited -= job.lane != job.queue
        return job

    def _rotate(self, names: list[str]) -> None:
        self.queues = {name: self.queues[name] for name in (*names[1:], names[0])}

    def _may_run(self, queue: str) -> bool:
        cap = self.queues.get(queue)
        return cap is None or self._running_of.get(queue, 0) < cap
