"""Builds the services of a worker that serve the whole fleet: rescuing, pruning, declaring, planning ticks, cancelling."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from trueup.config import Settings
from trueup.events import Events, ServiceFailed
from trueup.store.db.connect import is_away
from trueup.store.history import Kept
from trueup.store.lanes import Lanes
from trueup.store.store import Store
from trueup.texts import describe, type_name
from trueup.work.declarer import Declarer, WorkerCode
from trueup.work.jobs.services import JobServices
from trueup.work.pruner import Pruner
from trueup.work.registration import Registrations
from trueup.work.rescuer import Rescuer
from trueup.work.service import Service
from trueup.work.stopper import Stopper
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
