"""One sweep by hand: a row_services of one reconciler, whose rows are shared with the workers that sweep at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from uuid import UUID, uuid4

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.errors import ConfigError
from trueup.events import Events, IndexMissing, RowProposed, RowQuarantined, RowRetried, SweepRefused
from trueup.operate.runs.leased import Bounds, leased
from trueup.operate.runs.limits import Allowance, ease, limited
from trueup.operate.runs.orderly import orderly
from trueup.operate.runs.results import Progress, Run
from trueup.operate.runs.rows import slowness_explained, waiting
from trueup.operate.runs.shadow import Shadow, unfail
from trueup.reconcile.counts import Counts
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.store.rows.reconcilers import Gate, Reconcilers
from trueup.store.store import Store
from trueup.work.rows.purger import Purger
from trueup.work.rows.services import RowServices
from trueup.work.rows.sweeper import Sweeper


async def sweep(
    store: Store,
    settings: Settings,
    events: Events,
    declared: Reconciler | Purge,
    *,
    limit: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    bounds: Bounds | None = None,
) -> Run:
    """`force`: also while it is paused, or rests. Raises LostLease when the lease of `bounds` is gone in the end."""
    bounds = bounds or Bounds(None, settings.drain_for, None)
    if bounds.lease is not None:
        if isinstance(declared, Purge):
            raise ConfigError(f"reconciler {declared.name!r} has no handler whose outcomes lease= could fence")
        declared = leased(declared, bounds)
    bounds.check()
    holder, allowance = uuid4(), Allowance(limit)
    row_services = _OneSweep(store, settings, events, [declared], lambda: holder)
    row_services.open_to(allowance, force=force, shadow=isinstance(declared, Shadow))
    run = Run(declared.name)
    failed: list[str] | None = [] if isinstance(declared, Shadow) else None
    try:
        with _noting(events, run, failed), slowness_explained(declared.name, settings, run):
            await row_services.gather()
            member = row_services.members[declared.name]
            limited(member, allowance)
            note = await _counting(member, allowance, progress)
            row_services.renewer.start()
            started = elapsed()
            task = asyncio.create_task(member.sweep(progress=note))
            eased = partial(ease, member, allowance)
            kept = asyncio.create_task(bounds.keep(task, eased, row_services.interrupt))
            counts = await orderly(kept, eased, row_services.interrupt, settings.drain_for)
            run.seconds = elapsed() - started
            await member.stop()
        run.outcomes = {} if counts is None else counts.as_dict()
        if bounds.over:
            run.ending, run.why = "stopped", "its time was over; what it had not begun is left"
        bounds.check()
    finally:
        await row_services.close()
        if failed:
            await unfail(store, run, failed)
    return run


class _OneSweep(RowServices):
    def open_to(self, allowance: Allowance, *, force: bool, shadow: bool) -> None:
        log = _OwnGate(self._claiming, self._store.statements, self._store.clock)
        log.allowance, log.force, log.shadow = allowance, force, shadow
        self._log = log


class _OwnGate(Reconcilers):
    """Lets a forced sweep through, and does not take one that was cut short for a whole one.

    A live one's sweep in shadow leaves no trace: it was none, so far as lateness, outcomes and the breaker are concerned.
    """

    allowance: Allowance
    force: bool
    shadow: bool

    async def gate(self, name: str) -> Gate:
        gate = await super().gate(name)
        if self.force:
            gate = dataclasses.replace(gate, paused=False, rests_for=None)
        return dataclasses.replace(gate, pauses=0) if self.shadow else gate

    async def swept(self, name: str, past: int | None = None, writes: int | None = None) -> None:
        if self.allowance.left != 0 and not self.shadow:
            await super().swept(name, past, writes)

    async def log(self, name: str, holder: UUID, started_at: datetime, counts: Counts) -> None:
        if not self.shadow:
            await super().log(name, holder, started_at, counts)


async def _counting(
    member: Sweeper | Purger, allowance: Allowance, progress: Progress | None
) -> Callable[[Counts], None] | None:
    if progress is None:
        return None
    total = await waiting(member.rows if isinstance(member, Sweeper) else member.purges)
    if total is not None and allowance.left is not None:
        total = min(total, allowance.left)
    progress(0, total)

    def note(counts: Counts) -> None:
        if not allowance.over:  # rows that are given back now are counted, too
            progress(counts.settled, total)

    return note


@contextmanager
def _noting(events: Events, run: Run, failed: list[str] | None) -> Iterator[None]:
    """Keep what is told about this one in events; the keys of rows that failed, where they are wanted."""

    def propose(kind: str) -> None:
        run.proposed[kind] = run.proposed.get(kind, 0) + 1

    def note(event: object) -> None:
        match event:
            case SweepRefused(run.name, reason):
                run.ending, run.why = "refused", reason
            case IndexMissing(run.name, _, _, ddl):
                run.index_ddl = ddl
            case RowProposed(run.name, _, outcome):
                propose(proposed_kind(outcome))
            case RowRetried(reconciler=run.name) | RowQuarantined(reconciler=run.name) if failed is not None:
                propose(f"raise {event.error_type}")
                failed.append(event.key)

    end = events.subscribe(note, SweepRefused, IndexMissing, RowProposed, RowRetried, RowQuarantined)
    try:
        yield
    finally:
        end()


def proposed_kind(outcome: str) -> str:
    """`To('stored')` of `To('stored', size=3)`, `Stay` of `Stay(size=3)`: as `views/proposals.sql` counts them."""
    name, _, rest = outcome.partition("(")
    if name != "To" or not rest.startswith("'") or "'" not in rest[1:]:
        return name
    return f"To('{rest[1:].partition(chr(39))[0]}')"
