"""Runs one sweep by hand. It shares the rows with workers that sweep at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events, IndexMissing, RowProposed, RowQuarantined, RowRetried, SweepRefused
from trueup.operate.runs.leased import Bounds, leased
from trueup.operate.runs.orderly import orderly
from trueup.operate.runs.results import Progress, Run
from trueup.operate.runs.rows import slowness_explained, waiting
from trueup.reconcile.counts import Counts
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.store.rows.quarantine import Quarantine
from trueup.store.store import Store
from trueup.work.registration import Holder
from trueup.work.rows.options import SweepOptions
from trueup.work.rows.purger import Purger
from trueup.work.rows.services import RowServices
from trueup.work.rows.sweeper import Sweeper


async def sweep(
    store: Store,
    settings: Settings,
    events: Events,
    declared: Reconciler | Purge,
    options: SweepOptions,
    *,
    progress: Progress | None = None,
    bounds: Bounds | None = None,
) -> Run:
    """Sweep once. Raises LostLease if the lease of `bounds` is gone at the end."""
    bounds = bounds or Bounds(None, settings.drain_for, None)
    if bounds.lease is not None:
        declared = leased(declared, options, bounds)
    bounds.check()
    row_services = RowServices(store, settings, events, [declared], Holder(), options)
    run = Run(declared.name)
    failed: list[str] | None = [] if options.shadow else None
    try:
        with _noting(events, run, failed), slowness_explained(declared.name, settings, run):
            await row_services.gather()
            member = row_services.members[declared.name]
            note = await _counting(member, options, progress)
            row_services.renewer.start()
            started = elapsed()
            task = asyncio.create_task(member.sweep(progress=note))
            stop = partial(_stop_claiming, member, options)
            kept = asyncio.create_task(bounds.keep(task, stop, row_services.interrupt))
            counts = await orderly(kept, stop, row_services.interrupt, settings.drain_for)
            run.seconds = elapsed() - started
            await member.stop()
        run.outcomes = {} if counts is None else counts.as_dict()
        if bounds.over:
            run.ending, run.why = "stopped", "its time was over; rows that were not started are left"
        bounds.check()
    finally:
        await row_services.close()
        if failed:
            await unfail(store, run, failed)
    return run


def _stop_claiming(member: Sweeper | Purger, options: SweepOptions) -> None:
    """Claim no more rows, and release the waiting ones."""
    options.ended = True
    if isinstance(member, Sweeper):
        member.hand.release()


async def _counting(
    member: Sweeper | Purger, options: SweepOptions, progress: Progress | None
) -> Callable[[Counts], None] | None:
    if progress is None:
        return None
    total = await waiting(member.rows if isinstance(member, Sweeper) else member.purges)
    if total is not None:
        total = options.at_most(total)
    progress(0, total)

    def note(counts: Counts) -> None:
        if not options.ended:  # rows that are released now are counted, too
            progress(counts.settled, total)

    return note


@contextmanager
def _noting(events: Events, run: Run, failed: list[str] | None) -> Iterator[None]:
    """Add the events about this reconciler to the result, and note the keys of failed rows if they are wanted."""

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


async def unfail(store: Store, run: Run, failed: Sequence[str]) -> None:
    """Rows that failed in a shadow run spend no attempt and are not quarantined: release them, and count them as unchanged."""
    quarantine = Quarantine(store.pool, store.statements)
    await quarantine.release(run.name, failed, ("quarantined", "resting"))
    for name in ("retry", "quarantined"):
        run.outcomes["unchanged"] = run.outcomes.get("unchanged", 0) + run.outcomes.get(name, 0)
        run.outcomes[name] = 0
