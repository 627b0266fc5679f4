"""The services of a worker that serve the whole fleet: rescuing, pruning, declaring, planning ticks, cancelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import psycopg

from trueup import faults
from trueup.config import Settings
from trueup.events import (
    Events,
    HistoryDayCreated,
    HistoryDayDropped,
    JobFinishRefused,
    JobRescued,
    ServiceFailed,
    WorkerExpired,
)
from trueup.jobs.decide import Drop
from trueup.store.db.connect import is_away
from trueup.store.history import AHEAD, History, Kept, Pruned
from trueup.store.jobs import Jobs, Rescued
from trueup.store.lanes import Lanes
from trueup.store.store import Store
from trueup.store.workers import Workers
from trueup.texts import describe, type_name
from trueup.work.declarer import Declarer, WorkerCode
from trueup.work.jobs.finisher import Finisher
from trueup.work.jobs.hand import Hand
from trueup.work.jobs.hints import Hints
from trueup.work.jobs.refusals import MAX_APART, half_by_half, passes
from trueup.work.jobs.services import JobServices
from trueup.work.registration import Registrations
from trueup.work.service import Service, jittered
from trueup.work.ticker import Ticker

# All schedules wait while the planner waits for one of them. A pass takes milliseconds; one that takes longer is divided.
PLAN_TIMEOUT, PLAN_LOCK_TIMEOUT = timedelta(seconds=2), timedelta(milliseconds=250)


class Housekeeping:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: Events,
        work: JobServices,
        registrations: Registrations,
        code: WorkerCode,
    ) -> None:
        connection = store.own_connection("housekeeping")
        planning = store.own_connection("plan", lock_timeout=PLAN_LOCK_TIMEOUT, server_timeout=PLAN_TIMEOUT)
        jobs = store.jobs.on(connection)
        self.connections = [connection, planning]
        self.workers = store.workers.on(connection)
        self.events = events
        self.rescuer = Rescuer(
            jobs, self.workers, events, settings.rescue_every, work.hints, exhausts=code.registry.exhausted
        )
        self.pruner = Pruner(store.history.on(connection), events, _kept(settings), settings.prune_every)
        self.declarer = Declarer(
            store.declarations.on(connection),
            store.schedules.on(connection),
            jobs,
            Lanes(connection, store.statements),
            store.views.on(connection),
            events,
            code,
        )
        self.ticker = Ticker(store.schedules.on(planning), events)
        self.stopper = Stopper(jobs, work.hand, work.finisher, events, registrations)

    @property
    def services(self) -> list[Service]:
        return [self.rescuer, self.pruner, self.stopper, self.ticker, self.declarer]

    async def make_history_ready(self) -> None:
        """Today's partitions first: rows that come before them would stay in the catch-all. The pruner makes the others."""
        try:
            await self.pruner.make_ready()
        except psycopg.Error as error:
            if is_away(error):
                raise
            # Rows go to the catch-all partition meanwhile, and the pruner tries again: a problem with old rows must not delay new ones.
            self.events.emit(ServiceFailed(self.pruner.name, type_name(error), describe(error)).because(error))


def _kept(settings: Settings) -> Kept:
    return Kept(
        settings.keep_done,
        settings.keep_cancelled,
        settings.keep_dead,
        settings.keep_ticks,
        settings.keep_sweeps,
        settings.keep_actions,
    )


LOOKS_EVERY = 10.0  # seconds; behind a pooler this is how long a running job may go on after it was asked to stop


class Stopper(Service):
    """Cancels the handlers of jobs whose cancellation was requested. Woken by a notification; looks by itself while anything runs."""

    name = "stopper"

    def __init__(
        self, jobs: Jobs, hand: Hand, finisher: Finisher, events: Events, registrations: Registrations
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._hand = hand
        self._finisher = finisher
        self._registrations = registrations

    async def run_once(self) -> float:
        if self._hand.running or self._hand.waiting:
            for job_id, term in await self._jobs.stopping(self._registrations.current.holder):
                if run := self._hand.running.get((job_id, term)):
                    run.cancel("stop")
                elif job := self._hand.withdraw(job_id, term):
                    self._finisher.put_unstarted([job], Drop("stopped"))
        return jittered(LOOKS_EVERY)


class Pruner(Service):
    """Creates partitions of the history for the coming days and drops expired ones, instead of deleting single rows."""

    name = "pruner"

    def __init__(self, history: History, events: Events, kept: Kept, every: timedelta) -> None:
        super().__init__(events)
        self._history = history
        self._kept = kept
        self._every = every.total_seconds()
        self._refused: str | None = None

    async def run_once(self) -> float:
        await self.prune()
        return jittered(self._every)

    async def prune(self, ahead: int = AHEAD) -> Pruned:
        """One pass; creates the partitions of the next `ahead` days."""
        return self._tell(await self._history.prune(self._kept, ahead))

    async def make_ready(self) -> Pruned:
        """Make today's days, before anything is written to them."""
        return self._tell(await self._history.make_ready())

    def _tell(self, pruned: Pruned) -> Pruned:
        for partition in pruned.created:
            self.events.emit(HistoryDayCreated(partition))
        for partition in pruned.dropped:
            self.events.emit(HistoryDayDropped(partition))
        if pruned.refused is not None and pruned.refused != self._refused:  # said once
            advice = "the history's daily partitions are neither created nor dropped; run a worker as the owner of the schema"
            self.events.emit(ServiceFailed(self.name, "InsufficientPrivilege", f"{pruned.refused}: {advice}"))
        self._refused = pruned.refused
        return pruned


FORGET_EVERY = 6  # passes: dead workers that held no jobs wait this long until their rows are deleted


class Rescuer(Service):
    """Takes over the jobs of dead workers. Every worker does this for the fleet; per dead worker, the statement lets only one act."""

    name = "rescuer"

    def __init__(
        self,
        jobs: Jobs,
        workers: Workers,
        events: Events,
        every: timedelta,
        hints: Hints,
        *,
        exhausts: Callable[[], tuple[str, ...]],
    ) -> None:
        super().__init__(events)
        self._jobs = jobs
        self._workers = workers
        self._every = every.total_seconds()
        self._exhausts = exhausts
        self._hints = hints
        self._passes = 0

    async def run_once(self) -> float:
        await self.rescue()
        return jittered(self._every)

    async def rescue(self) -> list[Rescued]:
        """Make one pass. Returns the jobs that were taken over."""
        faults.hit("before_rescue")
        try:
            rescued = await self._jobs.rescue(self._exhausts())
        except psycopg.Error as error:
            if passes(error):
                raise
            rescued = await self._rescue_apart(error)
        faults.hit("after_rescue")
        for job in rescued:
            self.events.emit(
                JobRescued(
                    job.job_id, job.kind, job.attempt, job.state, str(job.holder), job.host, job.pid, job.exhausting
                )
            )
        if rescued:
            self._hints.look()
        if rescued or self._passes % FORGET_EVERY == 0:
            for holder, host, pid in await self._workers.forget():
                self.events.emit(WorkerExpired(str(holder), host, pid))
        self._passes += 1
        return rescued

    async def _rescue_apart(self, error: psycopg.Error) -> list[Rescued]:
        """Take jobs over half by half, because PostgreSQL refuses one of them."""
        kinds = await self._jobs.rescuable(MAX_APART)
        rescued: list[Rescued] = []
        culprits: dict[int, psycopg.Error] = {}

        async def rescue(some: Sequence[int]) -> list[Rescued]:
            return await self._jobs.rescue(self._exhausts(), some)

        try:
            async for some in half_by_half(kinds, rescue, culprits, ends=passes, first=error):
                rescued += some
        finally:
            for job_id, why in culprits.items():
                said = describe(why)
                self.events.emit(JobFinishRefused(job_id, kinds[job_id], "rescue", self._passes + 1, said))
                await self._jobs.refused(job_id, "rescue", said)
        return rescued
