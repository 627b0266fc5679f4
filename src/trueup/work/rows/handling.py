"""Calls a reconciler's handler for one row, with the arguments that it asks for, and returns how the call ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from types import TracebackType
from typing import Any

import psycopg
from psycopg import AsyncConnection

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import ConfigError, DatabaseUnavailable, LostClaim
from trueup.jobs.context import JobTransaction, beginning, check_ended, ending
from trueup.leases.lost import LostSignal
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.context import RowContext
from trueup.reconcile.decide import decide
from trueup.reconcile.outcome import Now, Outcome, Stay
from trueup.store.db.connect import RETRYABLE, is_away, unanswered
from trueup.store.db.lent import Lent
from trueup.store.db.pool import HandlerConnections
from trueup.store.fitted import RowStatements
from trueup.store.rows.asks import Done
from trueup.store.rows.kept import keeps_state
from trueup.store.rows.rows import Rows, check_readable
from trueup.work.calling import Caller, is_own_ending
from trueup.work.rows.held import Handled, RowInHand, certain, gone
from trueup.work.rows.refusals import OutcomeUndone, RowBusy
from trueup.work.rows.row_lock import Follow, Locking, nothing

BUSY_PAUSE = 0.05  # seconds until a locked row is tried again
BUSY_TRIES = 100
RENEWAL_PAUSE = 0.01  # seconds until a row that is being renewed is written


class ProcessDied(Exception):
    """At each attempt the process that held the row died, so its handler is not called again."""


class LeasePassed(Exception):
    """At each attempt the lease of the row expired in a living process, so its handler is not called again."""


class Handling:
    def __init__(self, rows: Rows, connections: HandlerConnections, caller: Caller, random: Random) -> None:
        self.rows = rows
        self.connections = connections
        self.random = random
        self._reconciler = rows.reconciler
        self._caller = caller
        self.locking = Locking(rows, connections, self._call) if rows.reconciler.claim == "row_lock" else None

    async def run(self, held: RowInHand, follow: Follow = nothing) -> Handled:
        """Call the handler. Any error is part of the result; raises CancelledError only when trueup has cancelled the handler."""
        handled, made = Handled(LostClaim("not begun")), self.rows.made
        try:
            await self._run(held, handled, follow)
        except BaseException as error:
            if not is_own_ending(error, cancelled_by_us=held.cancelled is not None):
                raise
            handled.ended = error
            if isinstance(error, psycopg.Error) and not is_away(error):
                handled.unspent = await self._table_changed(made, error)
        return handled

    async def _table_changed(self, made: RowStatements, refusal: Exception) -> bool:
        """Whether the table has changed, which may be the reason for a refusal; then no row is to blame."""
        try:
            return await self.rows.changed_since(made, refusal=refusal)
        except ConfigError:
            return True
        except (*RETRYABLE, DatabaseUnavailable):
            return False

    def let_go(self, held: RowInHand) -> None:
        """Release what was prepared for a row that will not begin."""
        if self.locking is not None:
            self.locking.let_go(held)

    async def _run(self, held: RowInHand, handled: Handled, follow: Follow) -> None:
        row = held.row
        if row.spent:
            handled.ended = _why_spent(row)
            handled.made = made_if_possible(self._reconciler.handler.shape.make, row)
            return
        check_readable(row.values)
        if self._reconciler.mode == "shadow":
            await self._in_shadow(held, handled)
        elif self.locking is not None:
            await self.locking.run(held, handled, follow)
        else:
            handled.made = self._reconciler.handler.shape.make(row.values)
            await self._call(held, handled, None)

    async def settle(self, held: RowInHand, move: Any, connection: AsyncConnection[Any]) -> Done | None:
        """Write the outcome in the handler's own transaction, just before its commit."""
        row = held.row
        if row.trust.left(self.rows.clock.elapsed()) <= 0:
            raise LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} is no longer trusted")
        while not held.begin_writing():  # noqa: ASYNC110 - the renewer's thread has no loop to set an event on
            await asyncio.sleep(RENEWAL_PAUSE)
        done: Done | None = None
        try:
            done = (await self.rows.settle(row.holder, [row], [move], connection)).get(row.key)
        except psycopg.Error as error:
            if not keeps_state(error):
                raise
            done = "undone"
        finally:
            held.end_turn("write")
        if done == "changed":
            # From the commit on there is no lease to renew, and the renewer must not take it for lost.
            held.keep = False
            held.uncertain = True
            faults.hit("before_row_commit")
        return done

    async def checkpoint(self, held: RowInHand, columns: Mapping[str, Any]) -> Done | None:
        """Write these columns now. Renewals wait meanwhile: what the row is compared with changes."""
        row = held.row
        done: Done | None = "busy"
        for _ in range(BUSY_TRIES):
            if row.trust.left(self.rows.clock.elapsed()) <= 0:
                raise LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} is no longer trusted")
            while not held.begin_writing():  # noqa: ASYNC110 - the renewer's thread has no loop to set an event on
                await asyncio.sleep(RENEWAL_PAUSE)
            try:
                done = await self.rows.checkpoint(row, columns)
            finally:
                held.end_turn("write")
            if done != "busy":
                break
            await asyncio.sleep(BUSY_PAUSE)
        faults.hit("after_row_checkpoint")
        return done

    async def _in_shadow(self, held: RowInHand, handled: Handled) -> None:
        """Run the handler in a transaction that is rolled back."""
        handler = self._reconciler.handler
        handled.made = handler.shape.make(held.row.values)
        if handler.tx is None:
            await self._call(held, handled, None)
            return
        async with self.connections.transaction() as connection:
            await Lent(repr(self._reconciler)).begin(connection, self._reconciler.lease_for)
            await self._call(held, handled, connection)
            raise psycopg.Rollback

    async def _call(self, held: RowInHand, handled: Handled, tx: AsyncConnection[Any] | None) -> None:
        """Call the handler's function within its timeout."""
        handler, timeout = self._reconciler.handler, self._reconciler.timeout
        context: RowContext | None = None
        if handler.context is not None:
            held.lost = LostSignal()
            context = RowContext(held.row, held.lost, _Port(self, held, handled))
        held.started = elapsed()
        held.until = held.started + timeout.total_seconds()
        faults.hit("before_row_handler")
        try:
            call = partial(handler.call, handled.made, context, tx)
            returned = await self._caller.call(
                call, is_async=handler.is_async, timeout=timeout, patient=held.must_end, about=held.row
            )
        finally:
            if held.lost is not None:
                held.lost.set()  # the context has ended: a thread that a timeout left behind learns it here
        if context is not None:
            check_ended(context)
        if handled.settled is None:
            outcome = handler.outcome(returned)
            check_outcome(self.rows, outcome)
            handled.ended = outcome
        faults.hit("after_row_handler")


def check_outcome(rows: Rows, outcome: Any) -> None:
    """Raise ConfigError when an outcome names a column that the table does not have, or that a handler may not set."""
    found, columns = rows.found, getattr(outcome, "columns", {})
    spec, working = found.spec, rows.reconciler.selection.claimed_as
    for name in columns:
        column = found.columns.get(name)
        if column is None:
            raise ConfigError(
                f"{outcome!r:.200}: table {spec} has no column {name!r}; it has {', '.join(found.columns)}"
            )
        if name in spec.key:
            raise ConfigError(f"{outcome!r:.200}: {name!r} is part of the key of table {spec}, which cannot change")
        if name == spec.state:
            raise ConfigError(
                f"{outcome!r:.200}: {name!r} is the state of table {spec}; return To({columns[name]!r}, …)"
            )
        if name in (spec.lease_columns or ()):
            raise ConfigError(
                f"{outcome!r:.200}: {name!r} is in lease_columns= of table {spec}, which only trueup sets"
            )
        if isinstance(columns[name], Now):
            raise ConfigError(f"{outcome!r:.200}: Now() is for claimed_as=; give ctx.now, or await app.now()")
        if column.generated:
            raise ConfigError(f"{outcome!r:.200}: column {name!r} of table {spec} is generated and cannot be set")
    state = getattr(outcome, "state", None)
    if state is not None and spec.state is None:
        raise ConfigError(f"{outcome!r:.200}: table {spec} was declared without state=; return Stay(…)")
    if state is not None and state == working:
        raise ConfigError(
            f"{outcome!r:.200}: {working!r} is claimed_as= of this reconciler, which takes over rows in that state; "
            "return another state"
        )


def _why_spent(row: ClaimedRow) -> Exception:
    if row.outlived:
        said = "its handler exceeded its timeout and did not end, or blocked the event loop"
        return LeasePassed(f"the lease expired at every attempt, {row.attempt} times: {said}")
    return ProcessDied(f"the process that held it died, {row.attempt} times")


def made_if_possible(make: Any, row: ClaimedRow) -> Any:
    try:
        return make(row.values)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


class _Port:
    def __init__(self, handling: Handling, held: RowInHand, handled: Handled) -> None:
        self._lent = (handling, held, handled)

    def transaction(self, context: RowContext, outcome: Outcome) -> JobTransaction:
        return _RowTransaction(context, outcome, *self._lent)

    async def checkpoint(self, context: RowContext, columns: dict[str, Any]) -> None:
        handling, held, handled = self._lent
        rows = handling.rows
        if rows.reconciler.claim == "row_lock":
            raise ConfigError(
                "claim='row_lock' has one transaction, which commits with the outcome; a checkpoint needs claim='lease'"
            )
        if handled.settled is not None:
            raise ConfigError("ctx.transaction() has finished this row; a checkpoint must come before it")
        if context.lost.is_set():
            raise gone(context.row)
        outcome = rows.reconciler.handler.translate(Stay(columns))
        assert isinstance(outcome, Stay)
        check_outcome(rows, outcome)
        if outcome.columns and rows.reconciler.mode != "shadow":
            refuse(context, handled, outcome, await handling.checkpoint(held, outcome.columns))


class _RowTransaction(JobTransaction):
    """`ctx.transaction()` of a row's handler: the outcome of the row is its last statement."""

    def __init__(
        self, context: RowContext, outcome: Outcome, handling: Handling, held: RowInHand, handled: Handled
    ) -> None:
        self._context = context
        self._outcome = outcome
        self._handling = handling
        self._held = held
        self._handled = handled
        self._stack = AsyncExitStack()
        self._connection: AsyncConnection[Any] | None = None
        self._lent = Lent(f"{context.row.reconciler} {context.row.key}: the handler")

    async def __aenter__(self) -> AsyncConnection[Any]:
        rows = self._handling.rows
        if rows.reconciler.claim == "row_lock":
            raise ConfigError("claim='row_lock' has one transaction, the handler's tx; return the outcome")
        if self._handled.settled is not None:
            raise ConfigError("ctx.transaction() finishes its row, and can be used only once")
        if self._context.lost.is_set():
            raise gone(self._context.row)
        self._outcome = rows.reconciler.handler.translate(self._outcome)
        check_outcome(rows, self._outcome)
        with beginning(self._context):
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(certain(self._held, self._handled))
                connection = await stack.enter_async_context(self._handling.connections.transaction())
                await self._lent.begin(connection, rows.reconciler.lease_for)
                self._stack = stack.pop_all()
        self._connection = connection
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ending(self._context):
            if error is None:
                await self._commit()
            else:
                await self._stack.__aexit__(kind, error, trace)

    async def _commit(self) -> None:
        handled = self._handled
        if self._handling.rows.reconciler.mode == "shadow":
            handled.ended = handled.settled = self._outcome
            await self._roll_back()
            return
        assert self._connection is not None
        try:
            await self._lent.check(self._connection)
            done = await self._settle()
        except BaseException:
            await self._stack.__aexit__(*sys.exc_info())
            raise
        if done != "changed":
            await self._roll_back()
            refuse(self._context, handled, self._outcome, done)
        try:
            await self._stack.__aexit__(None, None, None)
        except Exception as refused:
            self._context.uncertain = unanswered(refused)
            raise
        self._held.written = handled.ended = handled.settled = self._outcome
        self._context.finished = True

    def __enter__(self) -> Any:
        raise ConfigError("ctx.transaction() of a reconciler is for async handlers; make it `async def`")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Never entered."""

    async def _settle(self) -> Done | None:
        handling, row = self._handling, self._context.row
        assert self._connection is not None
        move = decide(self._outcome, row, handling.rows.reconciler, handling.random)
        for _ in range(BUSY_TRIES):
            done = await handling.settle(self._held, move, self._connection)
            if done != "busy":
                break
            await asyncio.sleep(BUSY_PAUSE)
        return done

    async def _roll_back(self) -> None:
        try:
            raise psycopg.Rollback
        except psycopg.Rollback:
            await self._stack.__aexit__(*sys.exc_info())


def refuse(context: RowContext, handled: Handled, outcome: Outcome, done: Done | None) -> None:
    """Raise the error that tells the handler why its write did not take place."""
    if done == "changed":
        return
    if done == "busy":
        raise RowBusy(f"{context!r}: another session has locked the row; nothing was changed")
    if done == "undone":
        handled.refused, handled.settled = done, outcome
        raise OutcomeUndone(f"{context!r}: a trigger of its table keeps the row unchanged; nothing was changed")
    if done in ("conflict", "contested"):
        handled.refused, handled.settled = done, outcome
        raise LostClaim(f"{context!r}: another transaction has changed the row; nothing was changed")
    raise LostClaim(f"{context!r}: the lease is gone; nothing was changed")
