"""A worker: it registers as a holder, and runs everything that loops.

Start: it checks the schema, registers (a row in `workers`), and starts the renewer and the services. When it loses its lease, it
cancels all handlers, writes nothing more under that registration, and registers again under a new holder id. Stop: it claims
nothing more, gives running handlers `drain_for`, hands back the rest at once with its attempt, and deletes its row. A second
request to stop ends it immediately.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import psycopg

from trueup.aside import aside
from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import (
    DowntimeFound,
    Events,
    ServiceFailed,
    WorkerLeaseLost,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from trueup.jobs.registry import Registry
from trueup.leases.trust import Trust
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.store.db.connect import RETRYABLE, unavailable
from trueup.store.rows.scans import Scans
from trueup.store.schedules import Entry
from trueup.store.store import Store
from trueup.texts import describe, type_name
from trueup.work.declarer import WorkerCode
from trueup.work.housekeeping import Housekeeping
from trueup.work.jobs.services import LAST_WORD, JobServices
from trueup.work.listener import Listener, Wakes
from trueup.work.probes import Probes
from trueup.work.registration import Registration, Registrations, new_identity
from trueup.work.renewer import Renewer
from trueup.work.rows.services import RowServices
from trueup.work.scans.scanner import Scanner
from trueup.work.service import Service
from trueup.work.starting import open_connections, patiently


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a worker ended: how many jobs it released, and how many handlers ignored their cancellation."""

    released: int
    abandoned: int


# Workers that start together declare the same things. If the server's default is serializable, only one of them wins each round.
COLLISIONS = 20


class Worker:
    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        events: Events,
        *,
        queues: Mapping[str, int | None] | None = None,
        concurrency: int | None = None,
        schedules: Sequence[Entry] = (),
        scans: Sequence[Scan[Any]] = (),
        reconcilers: Sequence[Reconciler | Purge] = (),
        beside: Sequence[Service] = (),
    ) -> None:
        self.store = store
        self.registry = registry
        self.settings = settings
        self.events = events
        self._beside = beside  # services made elsewhere, such as the one that watches the fleet
        self._queues = dict(queues or settings.queues or dict.fromkeys(registry.queues() or ["default"]))
        self._concurrency = concurrency or settings.concurrency
        self._stop_requested = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._pulse: asyncio.TimerHandle | None = None
        self._registering: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.process_ends = False  # when this worker ends, so handlers in other processes may be ended, too
        self.registrations = Registrations()
        self.jobs = JobServices(store, registry, settings, events, self.registrations, self._queues, self._concurrency)
        self.hand, self.hints, self.runner = self.jobs.hand, self.jobs.hints, self.jobs.runner
        self.claimer, self.finisher = self.jobs.claimer, self.jobs.finisher
        wanted = reconcilers if settings.reconcile else ()
        self.row_services = RowServices(store, settings, events, wanted, self.registrations)
        code = WorkerCode.of(settings, registry, self._queues, schedules, reconcilers, scans)
        self.housekeeping = keeping = Housekeeping(store, settings, events, self.jobs, self.registrations, code)
        self.rescuer, self.pruner, self.stopper = keeping.rescuer, keeping.pruner, keeping.stopper
        self.ticker, self.declarer = keeping.ticker, keeping.declarer
        wakes = Wakes(self.jobs, keeping, self.row_services, registry, self._queues)
        self.listener = Listener(store.notify_connection(), events, wakes)
        self.renewer = Renewer(store, events, settings, registry, on_lost=self._lost_elsewhere)
        self.health = Probes(settings, events, self.renewer, self._stop_requested)
        self._connections = [*self.jobs.connections, *keeping.connections]
        self.scanners = self._build_scanners(scans if settings.reconcile else ())
        self._at_start = [*self._connections, *(self.row_services.connections if wanted else ())]
        self._connections += self.row_services.connections

    def _build_scanners(self, scans: Sequence[Scan[Any]]) -> dict[str, Scanner]:
        if not scans:
            return {}
        store, connection = self.store, self.store.own_connection("scan")
        self._connections.append(connection)
        stored = Scans(connection, store.statements)
        return {
            scan.name: Scanner(scan, stored, store.terms, self.events, self.settings.lease_for, store.middlewares)
            for scan in scans
        }

    @property
    def _sweepers(self) -> list[Scanner | RowServices]:
        """The parts that run handlers of rows and scans."""
        return [*self.scanners.values(), self.row_services]

    @property
    def _services(self) -> list[Service]:
        services: list[Service] = [self.claimer, self.finisher, *self.housekeeping.services, *self._beside]
        services += self.scanners.values()
        return [*services, self.listener] if self._listens else services

    @property
    def _listens(self) -> bool:
        return self.settings.listen and self.settings.notify

    @property
    def trusted(self) -> bool:
        """Whether this worker's lease is still trusted, so that it may act."""
        return self.registrations.trusted

    def why_not_alive(self) -> str | None:
        return self.health.why_not_alive()

    @property
    def holder(self) -> str:
        return str(self.registrations.id)

    # -- starting -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the worker has begun to claim. Raises ConfigError or DatabaseUnavailable when it cannot start."""
        self._loop = asyncio.get_running_loop()
        await self._patiently(self.store.open)
        try:
            await self.health.serve()  # first: a port that is taken must not leave a worker behind that has begun
            await self._patiently(self._prepare)
        except BaseException:
            await self.abandon()
            raise
        self.renewer.start()
        for service in self._services:
            service.start()
        self.row_services.start()
        self._beat()

    async def _patiently(self, start: Callable[[], Awaitable[None]]) -> None:
        async def attempt() -> None:
            try:
                await start()
            except RETRYABLE as error:
                raise unavailable(self.store.url, error) from error

        await patiently(attempt, self.settings.start_within, self.events, self._stop_requested.is_set)

    async def _prepare(self) -> None:
        await aside(self.store.check_schema, "trueup start")
        more = 1 + self._listens  # for renewing, and for listening
        await open_connections(self._at_start, more, self.store.url)
        await self.row_services.gather()
        await self.housekeeping.make_history_ready()
        for left in reversed(range(COLLISIONS)):
            try:
                await self.register()
                break
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):  # others start right now
                if not left:
                    raise
                await asyncio.sleep(random.uniform(0, 0.1))  # noqa: S311

    async def register(self) -> None:
        """Declare everything, then register as a new holder. Registering is last, because it starts the lease."""
        if self.registrations.present is not None:  # the database may be another one than before
            await self.row_services.declare_again()
        declared = await self.declarer.begin()
        sent = self.store.clock.elapsed()
        identity = new_identity(self.settings.release, tuple(self._queues), self._concurrency, declared)
        downtime = await self.housekeeping.workers.register(identity, self.settings.lease_for)
        registration = Registration(identity, Trust(self.settings.lease_for, sent), self.store.clock)
        self.registrations.present = registration
        self.renewer.keep(registration)
        self.events.emit(
            WorkerStarted(
                str(identity.holder),
                identity.host,
                identity.pid,
                identity.queues,
                identity.concurrency,
                len(self.registry),
            )
        )
        if downtime is not None:
            self.events.emit(
                DowntimeFound(downtime.since.isoformat(), downtime.until.isoformat(), downtime.length.total_seconds())
            )

    async def run(self) -> Stopped:
        """Start, work until `request_stop`, stop."""
        await self.start()
        await self._stop_requested.wait()
        return await self.stop()

    def request_stop(self) -> None:
        """Ask `run` to end; the second call ends it immediately. Safe in a signal handler of the loop."""
        if self._stop_requested.is_set():
            self._stop_now.set()
        self._stop_requested.set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Twice a second: show the renewer that the event loop runs, and check whether the lease is still trusted."""
        assert self._loop is not None
        now = elapsed()
        self.health.beat(now)
        self.renewer.pulse(now, watched=bool(self.hand.running))
        registration = self.registrations.present
        if registration is not None and not registration.over and not registration.trusted:
            self.renewer.connection.cut()
            self._lost(registration, "it could not be renewed in time")
        if self._registering is not None and self._registering.cancelled() and not self._stop_requested.is_set():
            # A handler has cancelled every task it found.
            self._registering = asyncio.ensure_future(self._register_again())
        self._pulse = self._loop.call_later(0.5, self._beat)

    def _lost_elsewhere(self, registration: Registration, reason: str) -> None:
        """Called on the renewer's thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lost, registration, reason)

    def _lost(self, registration: Registration, reason: str) -> None:
        """The lease of this registration is lost: cancel its handlers, and register again."""
        if registration.over or registration is not self.registrations.present:
            return
        registration.over = True
        self.events.emit(WorkerLeaseLost(str(registration.holder), reason, self.jobs.lose()))
        if not self._stop_requested.is_set():
            self._registering = asyncio.ensure_future(self._register_again())

    async def _register_again(self) -> None:
        pause = 0.1
        while not self._stop_requested.is_set():
            try:
                await self.register()
            except Exception as error:
                if not isinstance(error, RETRYABLE):  # lost connections are reported elsewhere
                    self.events.emit(ServiceFailed("registration", type_name(error), describe(error)).because(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
            else:
                self.hints.look()
                return

    # -- stopping -----------------------------------------------------------------------------------------------------

    async def stop(self, drain_for: timedelta | None = None) -> Stopped:
        """Stop claiming, let running handlers end within `drain_for`, release the rest. May be called twice."""
        self._stop_requested.set()
        drain = self.settings.drain_for if drain_for is None else drain_for
        registration = self.registrations.present
        if registration is None:
            await self._close()
            return Stopped(0, 0)
        self.hand.closed = True
        unstarted = self.hand.take_all()
        self.events.emit(
            WorkerStopping(str(registration.holder), len(self.hand.running), len(unstarted), drain.total_seconds())
        )
        self.renewer.stopping = True
        sweeping = {asyncio.create_task(part.stop()) for part in self._sweepers}
        await self.ticker.stop()
        await self.claimer.stop()
        unstarted += self.hand.take_all()
        self.finisher.put_unstarted(unstarted)
        until = elapsed() + drain.total_seconds()
        await self._drain(drain.total_seconds(), sweeping)
        interrupted = await self._interrupt(sweeping)
        await self.jobs.flush(until)
        abandoned = await self.jobs.release_unresponsive(registration, process_ends=self.process_ends)
        stopped = Stopped(len(unstarted) + interrupted, abandoned)
        await self._leave(registration)
        await self._close()
        self.events.emit(WorkerStopped(str(registration.holder), stopped.released, stopped.abandoned))
        self.registrations.present = None
        return stopped

    async def _drain(self, seconds: float, sweeping: set[asyncio.Task[None]]) -> None:
        """Wait until no handler runs, the time is up, or a second request to stop comes."""

        async def nothing_runs() -> None:
            await self.hand.idle.wait()
            await asyncio.wait(sweeping)

        waiters = {asyncio.ensure_future(nothing_runs()), asyncio.ensure_future(self._stop_now.wait())}
        await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)

    async def _interrupt(self, sweeping: set[asyncio.Task[None]]) -> int:
        """Cancel the handlers that still run and wait a little for them. Returns how many jobs ended."""
        running, ending = len(self.hand.running), self.jobs.interrupt(process_ends=self.process_ends)
        for part in self._sweepers:
            part.interrupt()
        await asyncio.wait(ending | sweeping, timeout=LAST_WORD)
        return running - len(self.hand.running)

    async def _leave(self, registration: Registration) -> None:
        if registration.over:
            return
        registration.over = True  # a renewal under way finds no lease; that is not a loss
        try:
            await self.housekeeping.workers.leave(registration.holder)
        except RETRYABLE:
            return  # it expires by itself

    async def abandon(self) -> None:
        """Close everything and release nothing, as if the process had been killed."""
        await self._close()

    async def _close(self) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
        if self._registering is not None and not self._registering.done():
            self._registering.cancel()
            await asyncio.wait({self._registering})
        await aside(self.renewer.stop, "trueup stop")
        for service in self._services:
            await service.kill()
        await self.row_services.close()
        await self.runner.close()
        for connection in self._connections:
            await connection.close()
        await self.health.close()
