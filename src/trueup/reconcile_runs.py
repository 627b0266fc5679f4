"""One sweep, one scan, or a look at what one would do, by hand: in this process, at once, whatever its interval says.

A sweep by hand is a sweep like those of workers, under a holder of its own: rows are shared with workers that sweep at the
same time, and taken over from it when it dies. Cancelled, it claims nothing more, gives back what it has not begun, and lets
handlers end within `drain_for`; cancelled once more, it interrupts them, and their rows go back.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from psycopg import errors

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.events import Events, IndexMissing, RowProposed, RowQuarantined, RowRetried, SweepRefused
from trueup.jobs.failure import describe, type_name
from trueup.leases.trust import Trust
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Counts
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.store import tables
from trueup.store.purges import Purges, Taken
from trueup.store.quarantine import Quarantine
from trueup.store.reconcilers import Gate, Reconcilers
from trueup.store.rows import Batch, Position, Rows
from trueup.store.scans import Scans
from trueup.store.store import Store
from trueup.store.views import Record
from trueup.worker.rows.handling import Handling
from trueup.worker.rows.held import Held
from trueup.worker.rows.purger import Purger
from trueup.worker.rows.sweeper import Sweeper
from trueup.worker.rows.team import Team, check, owner
from trueup.worker.scanner import Scanner
from trueup.worker.threads import Threads

MOST_COUNTED = 1_000_000  # rows; counting more would take longer than people like to wait
LAST_WORD = 5.0  # seconds for handlers to end once they are cancelled, and for the last writes
NO_INTERVAL = timedelta(days=365)

Progress = Callable[
    [int, int | None], None
]  # rows or items seen through, and how many there were to begin with if known
T = TypeVar("T")


@dataclass(slots=True)
class Run:
    """How one sweep or scan by hand went.

    `ending` is `completed`, `refused` (by `max_fraction`), or how a scan ended: `stopped`, `failed`, `lost`, `elsewhere`.
    `outcomes` counts rows by what became of them; of a scan, items and failed ones since it was begun, by whomever.
    """

    name: str
    ending: str = "completed"
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    why: str | None = None  # it was refused, or failed
    proposed: dict[str, int] = field(default_factory=dict)  # in shadow mode: what would have been done, by kind
    index_ddl: str | None = None  # makes the index without which every claim reads the whole table

    @property
    def ok(self) -> bool:
        """Nothing for people to look at: it went to its end, and nothing failed for good."""
        if self.ending not in ("completed", "stopped"):
            return False
        return not (self.outcomes.get("quarantined") or self.outcomes.get("failed"))


@dataclass(slots=True)
class DryRun:
    """What a run would have in hand now, in its order. `total` counts all of it; None when there is too much, or no telling."""

    name: str
    would: str  # what would be done with each
    rows: list[Record] = field(default_factory=list)
    more: bool = False
    total: int | None = None
    why: str | None = None  # it would be refused; or the scan's generator failed

    @property
    def ok(self) -> bool:
        return self.why is None


# -- sweeping ---------------------------------------------------------------------------------------------------------


async def sweep(
    store: Store,
    settings: Settings,
    events: Events,
    declared: Reconciler | Purge,
    *,
    limit: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Run:
    """`force`: also while it is paused, or rests."""
    holder, allowance = uuid4(), Allowance(limit)
    team = _OneSweep(store, settings, events, [declared], lambda: holder)
    team.open_to(allowance, force=force, shadow=isinstance(declared, _Shadow))
    run = Run(declared.name)
    failed: list[str] | None = [] if isinstance(declared, _Shadow) else None
    try:
        with _noting(events, run, failed), _slowness_explained(declared.name, settings, run):
            await team.gather()
            member = team.members[declared.name]
            limited(member, allowance)
            note = await _counting(member, allowance, progress)
            team.keeper.start()
            started = elapsed()
            task = asyncio.create_task(member.sweep(progress=note))
            counts = await _orderly(task, lambda: _ease(member, allowance), team.interrupt, settings.drain_for)
            run.seconds = elapsed() - started
            await member.stop()
        run.outcomes = counts.as_dict()
    finally:
        await team.close()
        if failed:
            await _unfail(store, run, failed)
    return run


async def _unfail(store: Store, run: Run, failed: Sequence[str]) -> None:
    """What failed in the shadow of a live one has not failed: no attempt is spent, and nothing is in quarantine."""
    quarantine = Quarantine(store.pool, store.statements, store.clock)
    await quarantine.release(run.name, failed, ("quarantined", "resting"))
    for name in ("retry", "quarantined"):
        run.outcomes["unchanged"] = run.outcomes.get("unchanged", 0) + run.outcomes.get(name, 0)
        run.outcomes[name] = 0


class _OneSweep(Team):
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

    async def swept(self, name: str) -> None:
        if self.allowance.left != 0 and not self.shadow:
            await super().swept(name)

    async def log(self, name: str, holder: UUID, started_at: datetime, counts: Counts) -> None:
        if not self.shadow:
            await super().log(name, holder, started_at, counts)


@dataclass(slots=True)
class Allowance:
    """How many rows may still be claimed; None: any number. `over`: none, because the run is to end."""

    left: int | None
    over: bool = False

    def at_most(self, most: int) -> int:
        return most if self.left is None else min(most, self.left)

    def spend(self, count: int) -> None:
        if self.left is not None:
            self.left = max(0, self.left - count)


class LimitedRows(Rows):
    """Rows of which no more are claimed than allowed."""

    def __init__(self, rows: Rows, allowance: Allowance) -> None:
        self.__dict__.update(vars(rows))
        self._allowance = allowance

    async def claim_fresh(
        self, holder: UUID, most: int, after: Position | None, cut_off: datetime | None = None
    ) -> Batch:
        most = self._allowance.at_most(most)
        return self._counted(await super().claim_fresh(holder, most, after, cut_off)) if most else Batch(exhausted=True)

    async def claim_again(self, holder: UUID, most: int, cut_off: datetime | None, *, crashed: bool) -> Batch:
        most = self._allowance.at_most(most)
        return self._counted(await super().claim_again(holder, most, cut_off, crashed=crashed)) if most else Batch()

    def _counted(self, batch: Batch) -> Batch:
        self._allowance.spend(len(batch.rows))
        return batch


class LimitedPurges(Purges):
    """Moves and deletions of no more rows than allowed."""

    def __init__(self, purges: Purges, allowance: Allowance) -> None:
        self.__dict__.update(vars(purges))
        self._allowance = allowance
        self._declared = purges.purge

    @property
    def at_once(self) -> int:
        return 1  # what is still allowed is known when a batch has ended

    async def take(self, state: str | None, line: int = 0) -> Taken:
        most = self._allowance.at_most(self._declared.batch)
        if not most:
            return Taken(asked=1)  # as if there were none left
        self.purge = dataclasses.replace(self._declared, batch=most)
        taken = await super().take(state, line)
        self._allowance.spend(taken.count)
        return taken


def limited(member: Sweeper | Purger, allowance: Allowance) -> None:
    if isinstance(member, Sweeper):
        member.rows = LimitedRows(member.rows, allowance)
    else:
        member.purges = LimitedPurges(member.purges, allowance)


def _ease(member: Sweeper | Purger, allowance: Allowance) -> None:
    allowance.left, allowance.over = 0, True
    if isinstance(member, Sweeper):
        member.crew.give_back()


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


async def waiting(of: Rows | Purges, late_by: timedelta | None = None) -> int | None:
    """How many rows there are for it; None when that is too many to count, or takes too long."""
    try:
        count = await of.waiting(MOST_COUNTED, late_by=late_by)
    except errors.QueryCanceled:
        return None
    return None if count >= MOST_COUNTED else count


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


@contextmanager
def _slowness_explained(name: str, settings: Settings, run: Run | None = None) -> Iterator[None]:
    try:
        yield
    except errors.QueryCanceled:
        limit = format_duration(settings.statement_timeout)
        index = f"make the index: {run.index_ddl}" if run is not None and run.index_ddl else "an index may be missing"
        raise ConfigError(
            f"reconciler {name!r}: a statement took longer than statement_timeout={limit}; {index}"
        ) from None


async def _orderly(
    task: asyncio.Task[T], ease: Callable[[], None], interrupt: Callable[[], None], drain_for: timedelta
) -> T:
    """What the task returns. When this is cancelled: only after the task has been eased to its end."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        ease()
        try:
            await asyncio.wait({task}, timeout=drain_for.total_seconds())
        finally:  # also when cancelled once more
            if not task.done():
                interrupt()
                await asyncio.wait({task}, timeout=LAST_WORD)
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=LAST_WORD)
            if task.done() and not task.cancelled():
                task.exception()  # what it ended with does not matter any more
        raise


class _Shadow(Reconciler):
    """A declared one that changes nothing for once. People are shown it as it is declared."""

    as_declared: Reconciler

    def declared(self) -> Any:
        return self.as_declared.declared()


def in_shadow(reconciler: Reconciler) -> Reconciler:
    """The same, changing nothing. Rows rest for no time at all afterwards: the next real look at them is not to be put off.
    Those that fail are let go again when the sweep has ended, and do not make the fleet rest.

    A long sweep looks again, every interval, for rows that are due again; this one has none, or it would not end.
    """
    if reconciler.mode == "shadow":
        return reconciler
    values = {each.name: getattr(reconciler, each.name) for each in dataclasses.fields(reconciler)}
    changed = {"mode": "shadow", "revisit": timedelta(), "every": NO_INTERVAL, "pause_after": None}
    shadow = _Shadow(**{**values, **changed})
    object.__setattr__(shadow, "as_declared", reconciler)
    return shadow


# -- scanning ---------------------------------------------------------------------------------------------------------


async def scan_now(
    store: Store,
    settings: Settings,
    events: Events,
    scan: Scan[Any],
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """One scan from where it had come to, due or not. With a limit it is left there, for whoever goes on with it."""
    line = store.line("scan by hand")
    stopping: list[asyncio.Task[None]] = []

    def stop() -> None:
        stopping.append(asyncio.create_task(scanner.stop()))

    scanner = Scanner(
        _limited_scan(scan, limit, progress, stop),
        Scans(line, store.statements, store.clock),
        store.terms,
        events,
        settings.lease_for,
    )
    started = elapsed()
    try:
        task = asyncio.create_task(scanner.scan_once(anyway=True))
        scanned = await _orderly(task, stop, scanner.interrupt, settings.drain_for)
    finally:
        await scanner.stop()
        await asyncio.gather(*stopping)
        await line.close()
    counts = {"items": scanned.items, "failed": scanned.failed}
    why = None if scanned.error is None else f"{type_name(scanned.error)}: {describe(scanned.error)}"
    return Run(scan.name, scanned.ending, counts, elapsed() - started, why)


def _limited_scan(scan: Scan[Any], limit: int | None, progress: Progress | None, stop: Callable[[], None]) -> Scan[Any]:
    """The same scan, which tells of each item that was handled, and stops after so many."""
    loop, handler, done = asyncio.get_running_loop(), scan.handler, 0
    most = math.inf if limit is None else limit

    async def source(cursor: Any) -> AsyncIterator[tuple[Any, Any]]:
        drawn = 0
        async with aclosing(scan(cursor)) as items:
            async for item in items:
                yield item
                drawn += 1
                if drawn >= most:
                    await asyncio.Event().wait()  # until the last of them is handled: `stop` cancels this

    def handled() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, limit)
        if done == most:
            stop()

    async def awaited(item: Any) -> None:
        try:
            await handler(item)
        finally:
            handled()

    def called(item: Any) -> None:
        try:
            handler(item)
        finally:
            loop.call_soon_threadsafe(handled)

    counted: Scan[Any] = Scan(
        scan.name,
        source,
        every=scan.every,
        concurrency=scan.concurrency,
        timeout=scan.timeout,
        run_at_start=scan.run_at_start,
    )
    counted.each(awaited if scan.is_async else called)
    return counted


# -- looking ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def looking(store: Store, settings: Settings, declared: Reconciler | Purge) -> AsyncIterator[Rows | Purges]:
    """The rows of one, to look at: nothing is claimed, and nothing is written. Raises ConfigError as a worker's start would."""
    who = f"reconciler {declared.name!r}"
    line = store.line_for_rows("look")
    try:
        found = await tables.find(line, store.statements, declared.selection.table, who)
        check(found, who, declared)
        timeout = settings.statement_timeout
        if isinstance(declared, Purge):
            yield Purges(line, store.statements, store.clock, declared, found, timeout)
            return
        declared.handler.shape.check(who, found.columns)
        yield Rows(
            line,
            line,
            store.statements,
            store.clock,
            store.enqueue,
            declared,
            found,
            owner=owner(settings),
            timeout=timeout,
        )
    finally:
        await line.close()


async def dry_run(
    store: Store, settings: Settings, declared: Reconciler | Purge, *, limit: int, call: bool = False
) -> DryRun:
    """The rows there are for it now. With `call` its handler is called for each, in transactions that are rolled back."""
    dry = DryRun(declared.name, would(declared))
    with _slowness_explained(declared.name, settings):
        async with looking(store, settings, declared) as rows:
            found: list[Any] = await rows.listed(limit + 1)
            dry.more, found = len(found) > limit, found[:limit]
            dry.rows = [_row(*row[:4]) for row in found]
            dry.total = await waiting(rows) if dry.more else len(found)
            if isinstance(rows, Purges):
                dry.why = await rows.too_much()
            elif call:
                for row, said in zip(dry.rows, await _call_each(store, rows, found), strict=True):
                    row["outcome"] = said
    return dry


def would(declared: Reconciler | Purge) -> str:
    if isinstance(declared, Reconciler):
        function = declared.handler.function
        return f"call {getattr(function, '__qualname__', None) or type(function).__qualname__}"
    if declared.to is None:
        return "delete"
    columns = "".join(f", {name}={value!r}" for name, value in declared.columns.items())
    return f"move to {declared.to}{columns}"


def _row(key: str, state: str | None, due_since: datetime | None, attempts: int = 0) -> Record:
    return {"key": key, "state": state, "due_since": due_since, "attempts": attempts}


async def _call_each(store: Store, rows: Rows, found: Sequence[Any]) -> list[str]:
    """What the handler says to each row, `concurrency` at a time. In shadow mode, so that nothing it writes through us stays."""
    concurrency = rows.reconciler.concurrency
    connections, threads, places = store.connections_for_rows(), Threads(), asyncio.Semaphore(concurrency)
    handling = Handling(rows, connections, threads, random.Random())  # noqa: S311 - nothing is decided with it
    now = await store.schedules.now()

    async def one(key: str, state: str | None, due_since: datetime | None, attempts: int, values: Any) -> str:
        async with places:
            trust = Trust(timedelta(days=1), rows.clock.elapsed())  # there is no lease that could pass
            row = ClaimedRow(
                reconciler=rows.reconciler.name,
                holder=uuid4(),
                key=key,
                key_texts=(),
                term=0,
                attempt=attempts + 1,
                spent=False,
                alone=False,
                state=state,
                was_changed_at=None,
                seen=None,
                due_at=due_since,
                claimed_at=now,
                values=values,
                trust=trust,
            )
            ended = (await handling.run(Held(row, rows.clock.elapsed()))).ended
        if isinstance(ended, BaseException):
            return f"raises {type_name(ended)}: {describe(ended)}"
        return repr(ended)

    try:
        return await asyncio.gather(*(one(*row) for row in found))
    finally:
        threads.close()
        await connections.close()


async def dry_scan(scan: Scan[Any], cursor: Any, limit: int) -> DryRun:
    """The next items of a scan, each with the cursor behind it; nothing is done with them."""
    name = getattr(scan.handler, "__qualname__", repr(scan.handler))
    dry = DryRun(scan.name, f"call {name}")
    try:
        async with aclosing(scan(cursor)) as items:
            async for yielded in items:
                if len(dry.rows) == limit:
                    dry.more = True
                    break
                item, reached = scan.pair(yielded)
                dry.rows.append({"item": shown(item), "next_cursor": reached})
    except Exception as error:
        dry.why = f"its generator raised {type_name(error)}: {describe(error)}"
    dry.total = None if dry.more or dry.why else len(dry.rows)
    return dry


def shown(item: Any) -> str:
    try:
        return repr(item)[:1_000]
    except Exception as error:
        return f"<{type(item).__name__} that cannot be shown: {type_name(error)}>"
