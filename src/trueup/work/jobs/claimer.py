"""Claims jobs for this worker and puts them into its hand: from queues, and from the lanes of kinds that have limits.

The claimer claims only from lanes that it knows to have due jobs. It knows because one statement looked at all lanes, because a
notification named the lane, or because the last claim left jobs there. So empty queues and kinds at their limit cost nothing.

The pace decides how many jobs to claim in advance: hundreds of short jobs, but long jobs only when a runner is free, so that a
worker does not keep jobs that another worker could start. When the pace drops, the surplus is released. Of a kind with a limit, only
jobs that can start at once are claimed, because a job that waits in hand counts against the limit.

The claimer sleeps until something wakes it (a notification, room in the hand, a retry that has become due) or until the next look
at all lanes. The looks find every job; waking only saves time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from trueup import faults
from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events, JobsClaimed
from trueup.jobs.definition import Job
from trueup.jobs.job import ClaimedJob
from trueup.jobs.registry import Registry
from trueup.store.jobs import MAX_CLAIM_BYTES, ClaimedJobs, Jobs
from trueup.store.lanes import LaneClaim, Lanes
from trueup.work.jobs.finisher import Finisher
from trueup.work.jobs.hand import Hand
from trueup.work.jobs.hints import Hints, Rests
from trueup.work.jobs.pace import Pace
from trueup.work.jobs.places import Places
from trueup.work.jobs.refusals import JobRefusals
from trueup.work.jobs.runner import Runner
from trueup.work.registration import Registration, Registrations
from trueup.work.service import Service, jittered

HOLD_FOR = 1.0  # seconds of work that may wait in hand; beyond that, surplus jobs are released
CHECK_HAND_EVERY = 0.25  # seconds, while jobs wait in hand
RECOVER_AT_ONCE = 50  # jobs, with their arguments, in one answer
RECOVER_EVERY = 60.0  # seconds between looks for jobs of lost replies; after a failed claim the look comes at once
# Seconds until a lane whose due jobs could not be claimed is tried again; the pause doubles each time.
MIN_LANE_PAUSE, MAX_LANE_PAUSE = 0.25, 2.0
MIN_BUSY_PAUSE = 0.02  # the same when another worker was claiming, or when some keys were not looked at
TELL_EVERY = 0.25  # seconds between notifications that a lane has room that this worker cannot use
LOOK_AGAIN_AFTER = 0.05  # seconds between looks that are caused by notifications for a lane at its limit
SMALL_CLAIM = 500  # jobs in one claim while jobs of higher priority come
SMALL_CLAIMS_FOR = 60.0  # seconds since the last such job


class Claimer(Service):
    name = "claimer"

    def __init__(
        self,
        jobs: Jobs,
        lanes: Lanes,
        registry: Registry,
        hand: Hand,
        hints: Hints,
        runner: Runner,
        finisher: Finisher,
        events: Events,
        registrations: Registrations,
        settings: Settings,
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._lanes = lanes
        self._registry = registry
        self._hand = hand
        self._hints = hints
        self._wake = hints.changed
        self._runner = runner
        self._finisher = finisher
        self._registrations = registrations
        self._prefetch = settings.prefetch
        self._poll_every = settings.poll_every.total_seconds()
        self._poll_without_listen = settings.poll_without_listen.total_seconds()
        self._places = Places(registry, hand, runner.caller.pools)
        self._pace = Pace()
        self._ahead = 0
        self._small_until = 0.0  # of `elapsed`
        self._waiting = hints.waiting
        # The kinds of the latest claims come first, because the server looks kinds up in this order.
        self._kinds: dict[str, None] = {}
        self._limited: dict[str, Job[Any, Any]] = {}
        self._rests = Rests(min(self._poll_every, MAX_LANE_PAUSE))
        self._refusals = JobRefusals(jobs, events)
        self._full: set[str] = set()  # lanes that were at their limit at the last claim or look
        self._told_at: dict[str, float] = {}
        self._look_at = 0.0  # when to look at all lanes, even if notifications keep coming
        self._looked_at = 0.0
        self._lanes_first = False
        self._recover_at = elapsed() + RECOVER_EVERY
        self._starter: asyncio.TimerHandle | None = None
        self.listening = False

    def wake(self) -> None:
        """Look at all lanes now: a job may have become due in any of them."""
        self._hints.look()

    async def run_once(self) -> float:
        registration = self._registrations.current
        if not registration.trusted:
            return self._poll_without_listen
        self._pace.measure(self._runner.ended)
        self._ahead = self._pace.ahead(self._prefetch)
        self._hints.low_water = self._ahead // 2
        self._release()
        if elapsed() >= self._recover_at:
            await self._recover(registration)
        self._recover_at, planned = 0.0, self._recover_at  # until all claims below have been answered
        await self._find_waiting()
        self._lanes_first = not self._lanes_first  # neither may take every free runner from the other
        if self._lanes_first:
            await self._claim_lanes(registration)
        await self._claim_queues(registration)
        if not self._lanes_first:
            await self._claim_lanes(registration)
        self._recover_at = planned
        if self._hand.waiting <= self._hints.low_water and self._claimable():
            return 0.0
        held = CHECK_HAND_EVERY if self._hand.waiting else math.inf
        return min(max(self._look_at - elapsed(), 0.0), self._rests.next_in(), held)

    async def _recover(self, registration: Registration) -> None:
        """Take over jobs that this worker holds without knowing it: the reply to their claim was lost, and no other worker may
        claim them.

        The known jobs are listed before the database is asked, so a job that ends in between is not mistaken for an unknown one.
        """
        known = self._hand.knows() | self._finisher.knows()
        unknown = [
            job_id for job_id, term in await self._jobs.held_terms(registration.holder) if (job_id, term) not in known
        ]
        for start in range(0, len(unknown), RECOVER_AT_ONCE):
            self._take(
                registration,
                await self._jobs.held(registration.holder, unknown[start : start + RECOVER_AT_ONCE]),
                elapsed(),
            )
        self._recover_at = elapsed() + RECOVER_EVERY

    def _release(self) -> None:
        """Release jobs that this worker cannot start soon: surplus from a quicker pace, and jobs that missed the moment of their rate."""
        pace = self._pace.per_second
        surplus = self._hand.surplus(self._ahead) if self._hand.waiting_plain > pace * HOLD_FOR else []
        stranded = self._hand.stranded() if not self._ahead else []
        if given := [*surplus, *stranded, *self._hand.late()]:
            self._finisher.put_unstarted(given)

    def _controlled(self) -> dict[str, Job[Any, Any]]:
        """The kinds with limits that this worker serves, by lane."""
        if len(self._registry) != len(self._kinds):  # kinds are only ever added
            self._kinds = dict.fromkeys(job.kind for job in self._registry)
            queues = self._hand.queues
            self._limited = {job.lane: job for job in self._registry if job.controls.any and job.queue in queues}
        return self._limited

    async def _find_waiting(self) -> None:
        """Note which lanes may have due jobs: those that a hint named and those whose rest is over. When it is time, look at all lanes.

        The look is one cheap statement that writes nothing; an idle worker does nothing else. Repeated notifications for one lane must
        not postpone it: other lanes may have jobs that became due without a notification.
        """
        controlled = self._controlled()
        served = self._hand.queues.keys() | controlled.keys()
        look, heard, freed = self._hints.take()
        heard &= served
        if look:
            self._look_at = 0.0
        for lane in heard - self._full:
            self._rests.end(lane)
            self._waiting.setdefault(lane)
        if heard & self._full:  # a look tells room from one more job
            self._look_at = min(self._look_at, self._looked_at + LOOK_AGAIN_AFTER)
        self._waiting.update((lane, None) for lane in self._rests.over() if lane in served)
        await self._use_room(controlled, freed & controlled.keys())
        if elapsed() >= self._look_at:
            await self._look(controlled)

    async def _use_room(self, controlled: dict[str, Job[Any, Any]], freed: set[str]) -> None:
        """Jobs of these lanes have ended here, so waiting jobs of the same lanes may start: here, or on a worker that has room."""
        for lane in freed:
            if lane in self._full or self._rests.backing_off(lane):
                self._full.discard(lane)
                self._rests.end(lane)
                self._waiting.setdefault(lane)
            if lane in self._waiting and self._lane_room(controlled[lane]) <= 0:
                await self._tell(lane)

    async def _look(self, controlled: dict[str, Job[Any, Any]]) -> None:
        lanes = {**dict.fromkeys(self._hand.queues), **{lane: job.controls for lane, job in controlled.items()}}
        found = await self._lanes.waiting(lanes)
        pause = jittered(self._poll_every if self.listening else self._poll_without_listen)
        self._looked_at = elapsed()
        self._look_at = self._looked_at + pause
        self._full = {lane for lane, seconds in found.items() if seconds is None}
        for lane, seconds in found.items():
            if seconds is not None and 0 < seconds < pause:
                self._rests.wait(lane, seconds + 0.001)
        due = {lane for lane, seconds in found.items() if seconds == 0 and not self._rests.backing_off(lane)}
        still = [lane for lane in self._waiting if lane in due]
        self._waiting.clear()
        self._waiting.update(dict.fromkeys([*still, *due]))

    async def _tell(self, lane: str) -> None:
        """Notify other workers that the lane has room, when this worker cannot use it."""
        now = elapsed()
        if now >= self._told_at.get(lane, 0.0) + TELL_EVERY:
            self._told_at[lane] = now
            await self._lanes.tell(lane)

    def _room(self) -> dict[str, int]:
        # A job whose outcome is not written yet counts as in hand: if the database cannot keep up, the worker claims less.
        queues = [lane for lane in self._waiting if lane in self._hand.queues]
        return self._hand.room(self._ahead - self._finisher.pending, queues)

    def _lane_room(self, job: Job[Any, Any]) -> int:
        ahead = self._ahead if job.controls.limit is None else 0  # a limit counts jobs that wait in hand
        return self._hand.lane_room(job.queue, ahead - self._finisher.pending)

    def _claimable(self) -> bool:
        """Whether there is room for jobs of a lane that is waiting."""
        if not self._waiting:
            return False
        controlled = self._controlled()
        return bool(self._room()) or any(
            lane in controlled and self._places.free(controlled[lane].kind, self._lane_room(controlled[lane])) > 0
            for lane in self._waiting
        )

    def _asked(self, lane: str, *, more: bool) -> None:
        """A lane was claimed from. If it has more jobs, its next turn comes after the other lanes."""
        self._waiting.pop(lane, None)
        if more:
            self._waiting[lane] = None

    async def _claim_queues(self, registration: Registration) -> None:
        for queue, most in self._room().items():
            faults.hit("before_claim")
            bound = SMALL_CLAIM if elapsed() < self._small_until else most
            await self._claim_queue(registration, queue, self._places.bounded(min(most, bound)))

    async def _claim_queue(self, registration: Registration, queue: str, most: int) -> None:
        sent = elapsed()
        full = self._places.full()
        kinds = [kind for kind in self._kinds if kind not in full] if full else list(self._kinds)
        left, more = most, False

        async def claim(only: Sequence[int] | None) -> ClaimedJobs | None:
            if left <= 0:
                return None
            return await self._jobs.claim(registration.holder, queue, left, kinds, self._bytes(), only)

        async for jobs, unseen in self._refusals.claims(queue, kinds, claim):
            if jobs:
                faults.hit("after_claim")
            left, more = left - len(jobs), jobs.more or unseen
            if any(job.rank < job.run_at for job in jobs):
                self._small_until = elapsed() + SMALL_CLAIMS_FOR
            self._kinds = {**dict.fromkeys({job.kind for job in jobs}), **self._kinds}
            if surplus := self._places.surplus(jobs):
                self._finisher.put_unstarted(surplus)
                given = {job.id for job in surplus}
                self._take(registration, [job for job in jobs if job.id not in given], sent)
            else:
                self._take(registration, jobs, sent)
        self._asked(queue, more=more)

    async def _claim_lanes(self, registration: Registration) -> None:
        controlled = self._controlled()
        for lane in [lane for lane in self._waiting if lane in controlled]:
            job = controlled[lane]
            free = self._places.free(job.kind, self._lane_room(job))
            if free > 0:
                await self._claim_lane(registration, lane, job, free)

    async def _claim_lane(self, registration: Registration, lane: str, job: Job[Any, Any], most: int) -> None:
        sent = elapsed()
        left = most

        async def claim(only: Sequence[int] | None) -> LaneClaim | None:
            if left <= 0:
                return None
            return await self._lanes.claim(
                registration.holder, lane, job.controls, left, self._bytes(), job.queue, only
            )

        more = False
        async for claimed, unseen in self._refusals.claims(lane, [job.kind], claim):
            left, more = left - len(claimed.jobs), claimed.more or unseen
            self._note(lane, claimed)
            if job.controls.rate is None:
                self._take(registration, [each for each, _ in claimed.jobs], sent, first=True)
            else:
                for each, wait in claimed.jobs:
                    self._hand.expect(each, claimed.granted_at + wait.total_seconds(), job.controls.rate)
                self._start_paced()
                self._report(registration, len(claimed.jobs), sent)
        self._asked(lane, more=more)

    def _note(self, lane: str, claim: LaneClaim) -> None:
        """Decide when to claim from this lane again."""
        if claim.jobs or claim.full:
            self._rests.end(lane)
        if claim.full:
            self._full.add(lane)
        elif claim.ask_again_after is not None:
            self._rests.wait(lane, max(claim.ask_again_after.total_seconds(), 0.001))
        elif claim.busy or claim.unseen:
            self._rests.rest(lane, MIN_BUSY_PAUSE)
        elif not claim.jobs:
            self._rests.rest(lane, MIN_LANE_PAUSE)

    def _start_paced(self) -> None:
        """Wake a runner for each job whose moment has come, and set a timer for the next one."""
        if self._starter is not None:
            self._starter.cancel()
            self._starter = None
        if self._hand.closed:
            return
        if self._hand.paced.any_late():
            self._wake.set()  # the claimer releases them
        self._runner.rouse(self._hand.paced.ready())
        seconds = self._hand.paced.next_in()
        if seconds is not None:
            self._starter = asyncio.get_running_loop().call_later(max(seconds, 0.001), self._start_paced)

    def _bytes(self) -> int:
        """How many bytes of arguments may be claimed."""
        return max(MAX_CLAIM_BYTES - self._hand.waiting_bytes, 1)

    def _take(self, registration: Registration, jobs: list[ClaimedJob], sent: float, *, first: bool = False) -> None:
        if not jobs:
            return
        self._hand.put(jobs, first=first)
        self._runner.rouse(len(jobs))
        self._report(registration, len(jobs), sent)

    def _report(self, registration: Registration, claimed: int, sent: float) -> None:
        if claimed and self.events.wants(JobsClaimed):
            self.events.emit(JobsClaimed(str(registration.holder), claimed, round((elapsed() - sent) * 1000, 3)))
