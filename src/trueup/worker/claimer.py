"""Keeps the hand full: claims from the queues, and through the lanes of kinds that have limits.

How far ahead it claims follows the pace: short jobs are fetched hundreds at a time, long ones only as there is room to run
them, so that no worker hoards what another could start. Lanes are claimed only as far as jobs can start at once, because a
job that waits in hand counts against its lane's limits.

It sleeps until it is woken (a notification, room in the hand, a retry that has become due) or until the next poll; polling
alone is enough, the rest only makes it quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from trueup import faults
from trueup.clock import elapsed
from trueup.events import Events, JobsClaimed
from trueup.jobs.definition import Job
from trueup.jobs.job import ClaimedJob
from trueup.jobs.registry import Registry
from trueup.store.jobs import Jobs
from trueup.store.lanes import Lanes
from trueup.worker.executor import Executor
from trueup.worker.finisher import Finisher
from trueup.worker.hand import Hand
from trueup.worker.life import Life
from trueup.worker.service import Service, jittered

AHEAD_FOR = 0.1  # seconds of work to have in hand beyond what runs
RECOVER_EVERY = 60.0  # seconds between looks for jobs that are ours without our knowing; after a failed claim, at once
FULL_LANE = 0.25  # seconds until a lane at its limit is tried again, if no job of it ends here before
PACE_MEMORY = 0.5  # weight of the latest measurement


def ahead(pace: float, most: int) -> int:
    """How many jobs to have in hand beyond those that run, at this many jobs a second."""
    wanted = int(pace * AHEAD_FOR)
    return min(most, wanted) if wanted > 1 else 0


class Pace:
    """Jobs per second, as a moving average over the claims."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._at = elapsed()
        self._count = 0

    def measure(self, count: int) -> None:
        now = elapsed()
        passed = now - self._at
        if passed < 0.002:  # too short to mean anything
            return
        latest = (count - self._count) / passed
        self.per_second += PACE_MEMORY * (latest - self.per_second)
        self._at, self._count = now, count


class Claimer(Service):
    name = "claimer"

    def __init__(
        self,
        jobs: Jobs,
        lanes: Lanes,
        registry: Registry,
        hand: Hand,
        executor: Executor,
        finisher: Finisher,
        events: Events,
        life: Callable[[], Life],
        *,
        prefetch: int,
        poll_every: timedelta,
        poll_without_listen: timedelta,
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._lanes = lanes
        self._registry = registry
        self._hand = hand
        self._executor = executor
        self._finisher = finisher
        self._life = life
        self._prefetch = prefetch
        self._poll_every = poll_every.total_seconds()
        self._poll_without_listen = poll_without_listen.total_seconds()
        self._pace = Pace()
        self._ahead = 0
        self._heard: set[str] = set()
        self._look_at = 0.0  # at all lanes, whatever was heard of meanwhile
        self._lanes_first = False
        self._recover_at = elapsed() + RECOVER_EVERY
        self._hungry = (
            True  # there may be more: the last claim found as much as there was room for, or a queue was full
        )
        self._unasked = False  # some queue had no room, and may have jobs
        self._full = False  # no queue had
        self.listening = False

    def wake_after(self, delay: timedelta) -> None:
        """Something becomes due in a while."""
        seconds = delay.total_seconds()
        if seconds < self._poll_every:  # beyond that, polling is soon enough
            asyncio.get_running_loop().call_later(seconds + 0.001, self.wake)

    def hear(self, lane: str, delay: timedelta) -> None:
        """A lane has work, now or in a while."""
        if delay > timedelta():
            self.wake_after(delay)
        else:
            self._heard.add(lane)
            self.wake()

    def room(self) -> None:
        """A runner looked for a job, and little or nothing is left in hand."""
        if self._hungry:
            self._wake.set()

    @property
    def low_water(self) -> int:
        """With this few jobs waiting in hand it is time to claim again."""
        return self._ahead // 2

    async def run_once(self) -> float:
        life = self._life()
        if not life.trusted:
            return self._poll_without_listen
        self._pace.measure(self._executor.ended)
        self._ahead = ahead(self._pace.per_second, self._prefetch)
        if elapsed() >= self._recover_at:
            await self._recover(life)
        self._recover_at, planned = 0.0, self._recover_at  # until all claims below have been answered
        waiting = await self._worth_claiming()
        self._lanes_first = not self._lanes_first  # neither may take every free runner from the other
        lanes_pause = await self._claim_lanes(life, waiting) if self._lanes_first else 0.0
        more = await self._claim_queues(life, waiting)
        self._hungry = more or self._unasked
        if not self._lanes_first:
            lanes_pause = await self._claim_lanes(life, waiting)
        self._recover_at = planned
        if self._full:
            return self._until_look(min(lanes_pause, self._idle_pause()))  # whoever makes room wakes us
        if more and self._hand.waiting <= self.low_water and len(self._hand.running) < self._hand.concurrency:
            return 0.0
        return self._until_look(min(lanes_pause, self._idle_pause()))

    async def _recover(self, life: Life) -> None:
        """Take what is ours without our knowing: the reply to a claim was lost, and nobody else may touch those jobs.

        What we know of is noted before the database is asked: what ends meanwhile is then known, not found.
        """
        known = self._hand.knows() | self._finisher.knows()
        found = [job for job in await self._jobs.held(life.holder) if (job.id, job.term) not in known]
        self._take(life, found, elapsed())
        self._recover_at = elapsed() + RECOVER_EVERY

    def _until_look(self, pause: float) -> float:
        """Seconds until all lanes are looked at: after this pause, unless that was to be sooner already."""
        now = elapsed()
        self._look_at = now + pause if self._look_at <= now else min(self._look_at, now + pause)
        return self._look_at - now

    def _idle_pause(self) -> float:
        return jittered(self._poll_every if self.listening else self._poll_without_listen)

    def _controlled(self) -> dict[str, Job[Any, Any]]:
        """The lanes of kinds with limits that this worker serves."""
        return {job.lane: job for job in self._registry if job.controls.any and job.queue in self._hand.queues}

    async def _worth_claiming(self) -> set[str]:
        """All lanes while there was more than we took; those we heard of; and when it is time, a look at which have anything due.

        The look is one cheap statement that writes nothing, so it is what an idle worker costs. What is heard of one lane, again
        and again, must not put it off: the others may have jobs that nobody says a word about when their time has come.
        """
        lanes = [*self._hand.queues, *self._controlled()]
        heard, self._heard = self._heard, set()
        if self._hungry:
            return set(lanes)
        heard &= set(lanes)
        if heard and elapsed() < self._look_at:
            return heard
        return heard | set(await self._lanes.waiting(lanes))

    async def _claim_queues(self, life: Life, waiting: set[str]) -> bool:
        """Returns whether there is likely more to claim than there was room for."""
        # What has ended and is not yet written counts as in hand: a database that cannot keep up slows us down, not fills us up.
        room = self._hand.room(self._ahead - self._finisher.pending)
        self._unasked = len(room) < len(self._hand.queues)
        self._full = more = not room
        kinds = [job.kind for job in self._registry]
        for queue, most in room.items():
            if queue in waiting:
                if faults.ARMED:
                    faults.hit("before_claim")
                sent = elapsed()
                jobs = await self._jobs.claim(life.holder, queue, most, kinds)
                if faults.ARMED and jobs:
                    faults.hit("after_claim")
                self._take(life, jobs, sent)
                more = more or len(jobs) >= most
        return more

    async def _claim_lanes(self, life: Life, waiting: set[str]) -> float:
        """Returns how long until a lane should be asked again."""
        again = float("inf")
        for lane, job in self._controlled().items():
            free = self._hand.lane_room(job.queue, self._ahead - self._finisher.pending)
            if lane not in waiting or free <= 0:
                continue
            sent = elapsed()
            claim = await self._lanes.claim(life.holder, lane, job.controls, free)
            if claim.jobs:
                self._take(life, [claimed for claimed, wait in claim.jobs if not wait], sent, first=True)
                for claimed, wait in claim.jobs:
                    if wait:
                        self._hand.expect(claimed)
                        asyncio.get_running_loop().call_later(wait.total_seconds(), self._start_expected, claimed)
                again = 0.0
            elif claim.ask_again_after is not None:
                again = min(again, max(claim.ask_again_after.total_seconds(), 0.001))
            else:
                again = min(again, FULL_LANE)
        return again

    def _start_expected(self, job: ClaimedJob) -> None:
        if self._hand.arrived(job):
            self._executor.rouse(1)

    def _take(self, life: Life, jobs: list[ClaimedJob], sent: float, *, first: bool = False) -> None:
        if not jobs:
            return
        self._hand.put(jobs, first=first)
        self._executor.rouse(len(jobs))
        if self.events.wants(JobsClaimed):
            self.events.emit(JobsClaimed(str(life.holder), len(jobs), round((elapsed() - sent) * 1000, 3)))
