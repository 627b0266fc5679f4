"""Builds the sweepers and purgers of one worker, after inspecting every table, and starts and stops them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from trueup.aside import aside
from trueup.config import Settings
from trueup.errors import ConfigError
from trueup.events import Events, IndexMissing, NaiveTimestamp, ReconcilerDeclared
from trueup.reconcile.counts import Counts
from trueup.reconcile.outcome import To
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.store.db.own_connection import OwnConnection
from trueup.store.db.pool import HandlerConnections
from trueup.store.lanes import Lanes
from trueup.store.rows import checks, tables
from trueup.store.rows.guard import index_ddl, try_every, unserved
from trueup.store.rows.purges import Purges
from trueup.store.rows.reconcilers import Reconcilers
from trueup.store.rows.rows import Rows
from trueup.store.rows.tables import Found
from trueup.store.store import Store
from trueup.work.calling import Caller
from trueup.work.registration import Holder
from trueup.work.rows.handling import check_outcome
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.purger import Purger
from trueup.work.rows.renewer import RowRenewer
from trueup.work.rows.sweeper import Sweeper

# The share of statement_timeout after which the server ends a statement: its error then arrives before the client closes the connection.
SERVER_FIRST = 0.9


class RowServices:
    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: Events,
        declared: Sequence[Reconciler | Purge],
        holder: Holder,
        options: SweepOptions | None = None,
    ) -> None:
        """`options`: of a sweep by hand."""
        self._options = options or SweepOptions()
        self._store = store
        self._settings = settings
        self._events = events
        self._declared = list(declared)
        self._holder = holder
        self._timeout = settings.statement_timeout * SERVER_FIRST
        self._caller = Caller(events, store.middlewares)
        self._of_handlers: list[HandlerConnections] = []
        self._claiming = store.own_connection("rows claim", keep=True, for_rows=True)
        self._settling = store.own_connection("rows settle", keep=True, for_rows=True)
        self._log = Reconcilers(self._claiming, store.statements)
        self.renewer = RowRenewer(store, events)
        self.members: dict[str, Sweeper | Purger] = {}

    @property
    def connections(self) -> list[OwnConnection]:
        return [self._claiming, self._settling]

    def declare(self, declared: Iterable[Reconciler | Purge]) -> None:
        """Add these; the next `gather` includes them."""
        known = {each.name for each in self._declared}
        self._declared += [each for each in declared if each.name not in known]

    async def gather(self) -> None:
        """Inspect every table, and make the sweepers and purgers. Raises ConfigError when a table cannot be worked on."""
        if not self._declared:
            return
        try:
            for declared in self._declared:
                await self._add(declared)
            lanes = [declared.lane for declared in self._declared if declared.lane is not None]
            if lanes:
                await Lanes(self._claiming, self._store.statements).register(lanes)
            await self._settling.open()
        except BaseException:
            await self.close()
            raise

    async def _add(self, declared: Reconciler | Purge) -> None:
        if declared.name in self.members:
            return
        member, found = await self._made(declared)
        self.members[declared.name] = member
        await self._log.put(declared.name, declared.selection.table, declared.declared())
        await self._guard(member, found, declared)
        self._events.emit(ReconcilerDeclared(declared.name, str(declared.selection.table)))

    async def inspect(self, declared: Reconciler | Purge) -> None:
        """Inspect one table and report its faults, as `gather` does, but store nothing."""
        await self._guard(*await self._made(declared), declared)

    async def _made(self, declared: Reconciler | Purge) -> tuple[Sweeper | Purger, Found]:
        found = await self._look(declared)
        return self._purger(declared, found) if isinstance(declared, Purge) else self._sweeper(declared, found), found

    async def _look(self, declared: Reconciler | Purge) -> Found:
        """Inspect its table as it is now. Raises ConfigError when it cannot be worked on."""
        who = f"reconciler {declared.name!r}"
        found = await tables.find(self._claiming, self._store.statements, declared.selection.table, who)
        check(found, who, declared)
        return found

    async def declare_again(self) -> None:
        """Store the declarations again: the database may have been restored without them."""
        for declared in self._declared:
            if declared.name in self.members:
                await self._log.put(declared.name, declared.selection.table, declared.declared())

    def _purger(self, purge: Purge, found: Found) -> Purger:
        store = self._store
        purges = Purges(
            self._settling, store.statements, store.clock, purge, found, self._timeout, partial(self._look, purge)
        )
        return Purger(purges, self._log, store.clock, self._events, self._holder, self._options)

    def _sweeper(self, declared: Reconciler, found: Found) -> Sweeper:
        store, reconciler = self._store, self._options.of(declared)
        who = f"reconciler {reconciler.name!r}"
        rows = Rows(
            self._claiming,
            self._settling,
            store.statements,
            store.clock,
            store.enqueue,
            reconciler,
            found,
            owner=owner(self._settings),
            timeout=self._timeout,
            look=partial(self._look, reconciler),
        )
        try:
            check_outcome(rows, reconciler.exhausted)
        except ConfigError as wrong:
            raise ConfigError(f"{who}: exhausted={wrong}") from None
        connections = store.connections_for_rows()
        self._of_handlers.append(connections)
        sweeper = Sweeper(
            rows,
            self._log,
            connections,
            self._caller,
            self._events,
            self._holder,
            gather_for=self._settings.gather_for,
            options=self._options,
        )
        loop = asyncio.get_running_loop()
        self.renewer.add(rows, sweeper.in_hand, lambda lost: _on_loop(loop, lambda: sweeper.hand.lost(lost)))
        return sweeper

    async def _guard(self, member: Sweeper | Purger, found: Found, declared: Reconciler | Purge) -> None:
        """Emit an event when every claim would read a whole large table. Raises ConfigError when no sweep could work."""
        name, selection, who = declared.name, declared.selection, f"reconciler {declared.name!r}"
        for column, ddl in checks.naive_timestamps(found, selection.due_at):
            self._events.emit(NaiveTimestamp(name, str(found.spec), column, ddl))
        query, params = member.rows.claims.statement() if isinstance(member, Sweeper) else member.purges.statement()
        rows = await unserved(self._claiming, query, params, found, timeout=self._timeout, who=who)
        if rows is not None:
            order = [*([selection.order.column] if selection.order.column is not None else []), *found.spec.key]
            ddl = index_ddl(found, state=bool(selection.states), order=order)
            self._events.emit(IndexMissing(name, str(found.spec), rows, ddl))
        made = member.rows.made if isinstance(member, Sweeper) else member.purges.made
        await try_every(self._claiming, made.every(), found, timeout=self._timeout, who=who)

    async def sweep(self, name: str) -> Counts:
        """Run one whole sweep. All outcomes are written when this returns."""
        member = self.members.get(name)
        if member is None:
            raise ConfigError(f"no reconciler {name!r} is declared; there are {', '.join(self.members) or 'none'}")
        counts = await member.sweep()
        if isinstance(member, Sweeper):
            await member.finisher.stop()
        return counts

    def start(self) -> None:
        self.renewer.start()
        for member in self.members.values():
            member.start()

    def wake(self) -> None:
        """Sweep now: a person has released rows, or ended a pause."""
        for member in self.members.values():
            member.wake()

    async def stop(self) -> None:
        """Claim no more rows. Returns when all handlers have ended and their outcomes are written."""
        await asyncio.gather(*(member.stop() for member in self.members.values()))

    def interrupt(self) -> None:
        """Cancel handlers that still run; their rows are released."""
        for member in self.members.values():
            if isinstance(member, Sweeper):
                member.interrupt()

    async def close(self) -> None:
        """Close everything, even if handlers run."""
        for member in self.members.values():
            await member.kill()
        await aside(self.renewer.stop, "trueup stop")
        for connections in self._of_handlers:
            await connections.close()
        for connection in self.connections:
            await connection.close()
        self._caller.close()


def check(found: Found, who: str, declared: Reconciler | Purge) -> None:
    """Raise ConfigError unless this can be done on that table."""
    selection = declared.selection
    if isinstance(declared, Purge):
        unknown = sorted(declared.columns.keys() - found.columns.keys())
        if unknown:
            raise ConfigError(f"{who}: table {found.spec} has no column {unknown[0]!r} to set")
        reads: tuple[str, ...] = ()
        also, deletes = tuple(declared.columns), declared.to is None
        moves_to = () if declared.to is None else (declared.to,)
    else:
        wanted, exhausted = declared.handler.shape.columns, declared.exhausted
        reads = tuple(name for name in found.columns if wanted is None or name in wanted)
        also = tuple(name for name, _ in selection.claimed_set)
        deletes, moves_to = False, (exhausted.state,) if isinstance(exhausted, To) else ()
        declared.handler.shape.check(who, found.columns)
    checks.check(
        found,
        who,
        states=selection.states,
        stale_for=selection.stale_for is not None,
        due_at=selection.due_at,
        order_by=selection.order.column,
        claimed_as=selection.claimed_as,
        also=also,
        deletes=deletes,
        reads=reads,
        moves_to=moves_to,
    )


def owner(settings: Settings) -> str:
    """The name of this process in the user's own lease column, in front of the term; for people."""
    return settings.worker_name or f"{socket.gethostname()[:24]}:{os.getpid()}"


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop is closed: nothing runs there any more
        return
