"""The services of a worker that serve the whole fleet: rescuing, pruning, declaring, planning ticks, cancelling."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from trueup.config import Settings
from trueup.events import Events, HistoryDayCreated, HistoryDayDropped, ServiceFailed
from trueup.jobs.decide import Drop
from trueup.store.db.connect import is_away
from trueup.store.history import AHEAD, History, Kept, Pruned
from trueup.store.jobs import Jobs
from trueup.store.lanes import Lanes
from trueup.store.store import Store
from trueup.texts import describe, type_name
from trueup.work.declarer import Declarer, WorkerCode
from trueup.work.jobs.finisher import Finisher
from trueup.work.jobs.hand import Hand
from trueup.work.jobs.services import JobServices
from trueup.work.registration import Registrations
from trueup.work.rescuer import Rescuer
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


EVERY = 10.0  # seconds; behind a pooler this is how long a running job may go on after it was asked to stop


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
        return jittered(EVERY)


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
