"""Calls a reconciler's handler for one row, with everything it asks for, and says how that ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import psycopg
from psycopg import AsyncConnection

from trueup import faults
from trueup.errors import ConfigError, LostClaim
from trueup.jobs.context import JobTransaction
from trueup.jobs.outcome import JobTimeout
from trueup.lost import Lost
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.context import RowContext
from trueup.reconcile.decide import Ended, decide
from trueup.reconcile.handler import outcome_of
from trueup.reconcile.outcome import Outcome, translated
from trueup.store.connect import RETRYABLE
from trueup.store.line import BOUND, milliseconds
from trueup.store.pool import Pool
from trueup.store.rows import Done, Rows
from trueup.worker.rows.held import Held
from trueup.worker.threads import Threads

BUSY_PAUSE = 0.05  # seconds until a row that somebody has locked is tried again
BUSY_TRIES = 100


class ProcessDied(Exception):
    """The process that held the row died each time; it is not tried once more."""


@dataclass(slots=True)
class Handled:
    """How a run ended; `done` when it has been written already, in a transaction of the handler's."""

    ended: Ended
    made: Any = None
    done: Done | None = None


class Handling:
    def __init__(self, rows: Rows, pool: Pool, threads: Threads, random: Any) -> None:
        self._rows = rows
        self._reconciler = rows.reconciler
        self._pool = pool
        self._threads = threads
        self._random = random

    async def run(self, held: Held) -> Handled:
        """Never raises but CancelledError: whatever goes wrong is how it ended."""
        row = held.row
        if row.spent:
            return Handled(ProcessDied(f"the process that held it died, {row.attempt} times"))
        handled = Handled(LostClaim("not begun"))
        try:
            await self._run(held, handled)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if held.cancelled is not None or (task is not None and task.cancelling()):
                raise
            handled.ended = error  # the handler cancelled itself
        except (Exception, SystemExit, GeneratorExit) as error:
            handled.ended = error
        return handled

    async def _run(self, held: Held, handled: Handled) -> None:
        if self._reconciler.mode == "shadow":
            await self._in_shadow(held, handled)
        elif self._reconciler.claim == "row_lock":
            await self._in_lock(held, handled)
        else:
            handled.made = self._reconciler.handler.shape.make(held.row.values)
            await self._call(held, handled, None)

    async def _in_lock(self, held: Held, handled: Handled) -> None:
        """The row is locked, handled and written in one transaction. An error rolls it back, and is recorded after that."""
        row = held.row
        async with self._pool.transaction() as connection:
            await connection.execute(BOUND, milliseconds(self._reconciler.lease_for))
            locked = await self._rows.lock(row, connection)
            if locked is None:
                raise LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} is gone")
            status, values = locked
            if status != "locked":
                handled.done = "conflict" if status == "gone" else "busy"
                return
            handled.made = self._reconciler.handler.shape.make(values)
            await self._call(held, handled, connection)
            if isinstance(handled.ended, BaseException):
                raise handled.ended
            _trusted(row, self._rows)
            verdict = decide(handled.ended, row, self._reconciler, self._random, made=handled.made)
            done = (await self._rows.settle(row.holder, [row], [verdict], connection)).get(row.key)
            if done is None:
                raise LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} is gone")
            handled.done = done
            if faults.ARMED:
                faults.hit("before_row_commit")

    async def _in_shadow(self, held: Held, handled: Handled) -> None:
        """As if, in a transaction that is rolled back."""
        handler = self._reconciler.handler
        if handler.tx is None:
            handled.made = handler.shape.make(held.row.values)
            await self._call(held, handled, None)
            return
        async with self._pool.transaction() as connection:
            await connection.execute(BOUND, milliseconds(self._reconciler.lease_for))
            handled.made = handler.shape.make(held.row.values)
            await self._call(held, handled, connection)
            raise psycopg.Rollback

    async def _call(self, held: Held, handled: Handled, tx: AsyncConnection[Any] | None) -> None:
        """The handler itself, within its time."""
        handler, row = self._reconciler.handler, held.row
        context: RowContext | None = None
        if handler.context is not None:
            held.lost = Lost()
            context = RowContext(row, held.lost, _Port(self._rows, self._pool, handled, self._random))
        timeout = self._reconciler.timeout
        scope = asyncio.timeout(timeout.total_seconds())
        if faults.ARMED:
            faults.hit("before_row_handler")
        try:
            async with scope:
                call = partial(handler.call, handled.made, context, tx)
                if handler.is_async:
                    returned = await call()
                else:
                    returned = await self._threads.run(partial(copy_context().run, call))
            outcome = outcome_of(returned, handler.who)
        except TimeoutError:
            if not scope.expired():
                raise
            raise JobTimeout(timeout) from None
        finally:
            held.keep = held.keep and not scope.expired()
            if held.lost is not None:
                held.lost.set()  # the context is over: a thread left behind by a timeout learns it here
        if handled.done is None:
            handled.ended = checked_outcome(self._rows, outcome)
        if faults.ARMED:
            faults.hit("after_row_handler")


def checked_outcome(rows: Rows, outcome: Outcome) -> Outcome:
    """The outcome in the table's own names. Raises ConfigError when it names what the table does not have."""
    found, model = rows.found, rows.found.spec.model
    if model is not None:
        outcome = translated(outcome, model.column, model.stored, found.spec.state)
    columns = getattr(outcome, "columns", {})
    for name in columns:
        column = found.columns.get(name)
        if column is None:
            raise ConfigError(
                f"{outcome!r:.200}: table {found.spec} has no column {name!r}; it has {', '.join(found.columns)}"
            )
        if name in found.spec.key:
            raise ConfigError(
                f"{outcome!r:.200}: {name!r} is part of the key of table {found.spec}, which stays as it is"
            )
        if column.generated:
            raise ConfigError(f"{outcome!r:.200}: column {name!r} of table {found.spec} is generated and cannot be set")
    if hasattr(outcome, "state") and found.spec.state is None:
        raise ConfigError(f"{outcome!r:.200}: table {found.spec} was declared without state=; return Stay(…)")
    return outcome


def _trusted(row: ClaimedRow, rows: Rows) -> None:
    if row.trust.left(rows.clock.elapsed()) <= 0:
        raise LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} is no longer trusted")


class _Port:
    def __init__(self, rows: Rows, pool: Pool, handled: Handled, random: Any) -> None:
        self._arguments = (rows, pool, handled, random)

    def transaction(self, context: RowContext, outcome: Outcome) -> JobTransaction:
        return _RowTransaction(context, outcome, *self._arguments)


class _RowTransaction(JobTransaction):
    """The handler's own transaction, which ends with its row's outcome."""

    def __init__(
        self, context: RowContext, outcome: Outcome, rows: Rows, pool: Pool, handled: Handled, random: Any
    ) -> None:
        self._context = context
        self._outcome = outcome
        self._rows = rows
        self._pool = pool
        self._handled = handled
        self._random = random
        self._stack = AsyncExitStack()
        self._connection: AsyncConnection[Any] | None = None

    async def __aenter__(self) -> AsyncConnection[Any]:
        if self._rows.reconciler.claim == "row_lock":
            raise ConfigError("claim='row_lock' has one transaction, the handler's tx; return the outcome")
        _trusted(self._context.row, self._rows)
        self._outcome = checked_outcome(self._rows, self._outcome)
        self._connection = await self._stack.enter_async_context(self._pool.transaction())
        await self._connection.execute(BOUND, milliseconds(self._rows.reconciler.lease_for))
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rows.reconciler.mode == "shadow":
            self._handled.ended = self._outcome
            await self._roll_back()
            return
        if error is None:
            try:
                done = await self._settle()
            except BaseException:
                await self._stack.__aexit__(*sys.exc_info())
                raise
            if done != "changed":
                self._handled.done = done
                await self._roll_back()
                raise LostClaim(f"{self._context!r}: {_WHY[done]}; nothing was changed")
        try:
            await self._stack.__aexit__(kind, error, trace)
        except RETRYABLE:
            self._context.uncertain = error is None
            raise
        if error is None:
            self._handled.ended, self._handled.done = self._outcome, "changed"
            self._context.finished = True

    def __enter__(self) -> Any:
        raise ConfigError("ctx.transaction() of a reconciler is for async handlers; make it `async def`")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Never entered."""

    async def _settle(self) -> Done | None:
        row, connection = self._context.row, self._connection
        assert connection is not None
        _trusted(row, self._rows)
        verdict = decide(self._outcome, row, self._rows.reconciler, self._random)
        for _ in range(BUSY_TRIES):
            done = (await self._rows.settle(row.holder, [row], [verdict], connection)).get(row.key)
            if done != "busy":
                break
            await asyncio.sleep(BUSY_PAUSE)
        if faults.ARMED:
            faults.hit("before_row_commit")
        return done

    async def _roll_back(self) -> None:
        try:
            raise psycopg.Rollback
        except psycopg.Rollback:
            await self._stack.__aexit__(*sys.exc_info())


_WHY: dict[Done | None, str] = {
    None: "the lease is gone",
    "conflict": "somebody else has changed the row",
    "busy": "somebody has it locked",
}
