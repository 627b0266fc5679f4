"""A sweep inside a bounded run, such as a cron job: it ends at a deadline, and under a lease only its holder writes.

At the deadline no more rows are claimed, waiting rows are released, and handlers may end within `drain_for`; then they are interrupted
and their rows are released, too. When the lease is gone, handlers are interrupted at once.

Under a lease, every outcome that a handler returns, or writes with `ctx.transaction`, shares a transaction with `lease.fence`. When
another holder has the lease, the outcome is refused and the row is released without a spent attempt. Outcomes of `failed=` and
`exhausted=` after an error are fenced by the row's own claim, as always.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from psycopg import AsyncConnection

from trueup.errors import ConfigError, LostLease
from trueup.jobs.context import JobTransaction
from trueup.operate.runs.orderly import LAST_WORD
from trueup.reconcile.context import RowContext
from trueup.reconcile.handler import RowHandler, outcome_of
from trueup.reconcile.outcome import NOTHING, Again, Delete, Stay, To
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.work.leases.hold import Lease
from trueup.work.rows.options import SweepOptions

LEFT = Again(timedelta())  # the row is left to the process that has the lease now

T = TypeVar("T")


@dataclasses.dataclass
class Bounds:
    """The deadline of a run, and its lease."""

    within: timedelta | None
    drain_for: timedelta
    lease: Lease | None
    over: bool = False  # the time was over before the run
    gone: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)  # a write has found the lease gone

    def check(self) -> None:
        """Raises LostLease when another process may have the lease by now."""
        if self.lease is not None and (self.gone.is_set() or not self.lease.held()):
            raise LostLease(self.lease.name, self.lease.term)

    async def keep(self, task: asyncio.Task[T], stop: Callable[[], None], interrupt: Callable[[], None]) -> T | None:
        """Wait for the task, at most until a little after the deadline. Returns its result, or None if it had to be cancelled."""
        lost: list[asyncio.Task[Any]] = [asyncio.create_task(self.gone.wait())]
        if self.lease is not None:
            lost.append(asyncio.create_task(self.lease.lost.wait()))
        try:
            within = None if self.within is None else self.within.total_seconds()
            await asyncio.wait({task, *lost}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.over = True
            stop()
            if not any(each.done() for each in lost):
                await asyncio.wait({task}, timeout=self.drain_for.total_seconds())
            if not task.done():
                interrupt()
                await asyncio.wait({task}, timeout=LAST_WORD)
            if task.done():
                return task.result()
            task.cancel()
            await asyncio.wait({task}, timeout=LAST_WORD)
            return None
        finally:
            for each in (*lost, task):
                each.cancel()  # of no effect on one that has ended


def leased(declared: Reconciler | Purge, options: SweepOptions, bounds: Bounds) -> Reconciler:
    """The reconciler to sweep: its handler's outcomes are written only while the lease is held."""
    if isinstance(declared, Purge):
        raise ConfigError(f"reconciler {declared.name!r} has no handler whose outcomes lease= could fence")
    reconciler = options.of(declared)
    if not reconciler.handler.is_async or reconciler.claim != "lease" or reconciler.mode == "shadow":
        raise ConfigError(
            f"reconciler {reconciler.name!r}: lease= fences the outcomes of async handlers with claim='lease' in mode 'live'"
        )
    return dataclasses.replace(reconciler, handler=_fenced(reconciler.handler, bounds))


def _fenced(handler: RowHandler, bounds: Bounds) -> RowHandler:
    """The handler, wrapped so that its outcomes are written under the lease."""
    name = handler.context or "ctx"  # the caller makes one, whether the function asks for it or not

    @functools.wraps(handler.function)
    async def call(row: Any, **asked: Any) -> Any:
        context = _LeasedContext(asked[name], bounds)
        try:
            returned = await handler.call(row, context)
            if context.finished:
                return None
            outcome = outcome_of(returned, handler.who)
            if isinstance(outcome, To | Stay | Delete):
                async with context.transaction(outcome):
                    pass
                return None
        except LostLease:
            if not bounds.gone.is_set():
                raise  # of another lease, which the function has to handle
            return LEFT
        return outcome

    fenced = copy.copy(handler)
    fenced.function, fenced.context = call, name
    return fenced


class _LeasedContext(RowContext):
    __slots__ = ("_bounds",)

    def __init__(self, context: RowContext, bounds: Bounds) -> None:
        super().__init__(context.row, context.lost, context._rows)
        self._bounds = bounds

    def transaction(self, result: Any = None) -> JobTransaction:
        return _LeasedTransaction(super().transaction(result), self._bounds)

    async def checkpoint(self, more: Mapping[str, Any] = NOTHING, /, **columns: Any) -> None:
        self._bounds.check()
        await super().checkpoint(more, **columns)


class _LeasedTransaction(JobTransaction):
    def __init__(self, transaction: JobTransaction, bounds: Bounds) -> None:
        self._transaction = transaction
        self._bounds = bounds

    async def __aenter__(self) -> AsyncConnection[Any]:
        tx = await self._transaction.__aenter__()
        assert self._bounds.lease is not None
        try:
            await self._bounds.lease.fence(tx)
        except BaseException as error:
            if isinstance(error, LostLease):
                self._bounds.gone.set()
            await self._transaction.__aexit__(type(error), error, error.__traceback__)
            raise
        return tx

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transaction.__aexit__(kind, error, trace)

    def __enter__(self) -> Any:
        return self._transaction.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Never entered."""
