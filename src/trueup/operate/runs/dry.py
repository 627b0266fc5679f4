"""Dry runs: the rows or items that a sweep or a scan would take now. Nothing is claimed, and nothing is written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from trueup.config import Settings
from trueup.jobs.failure import describe, type_name
from trueup.leases.trust import Trust
from trueup.operate.runs.results import DryRun
from trueup.operate.runs.rows import looking, slowness_explained, tried, waiting
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.store.db.own_connection import Record
from trueup.store.rows.purges import Purges
from trueup.store.rows.rows import Rows
from trueup.store.store import Store
from trueup.texts import clean
from trueup.work.calling import Caller
from trueup.work.rows.handling import Handling
from trueup.work.rows.held import RowInHand

MAX_SHOWN = 1_000  # characters of an outcome or item


async def dry_run(
    store: Store, settings: Settings, declared: Reconciler | Purge, *, limit: int, call: bool = False
) -> DryRun:
    """The rows that match now. With `call` the handler is called for each, in transactions that are rolled back."""
    dry = DryRun(declared.name, would(declared))
    with slowness_explained(declared.name, settings):
        async with looking(store, settings, declared) as rows:
            await tried(store, settings, rows)
            found: list[Any] = await _listed(rows, limit + 1, values=call)
            dry.more, found = len(found) > limit, found[:limit]
            dry.rows = [_row(*row[:4]) for row in found]
            dry.total = await waiting(rows) if dry.more else len(found)
            if isinstance(rows, Purges):
                dry.why = (await rows.clearance()).refusal
            elif call:
                for row, said in zip(dry.rows, await _call_each(store, rows, found), strict=True):
                    row["outcome"] = said
    return dry


async def _listed(rows: Rows | Purges, most: int, *, values: bool) -> list[Any]:
    if isinstance(rows, Purges):
        return list(await rows.listed(most))
    return list(await rows.listed(most, values=values))


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
    """Call the handler for each row, `concurrency` at a time, in shadow mode, so that its writes through trueup do not stay."""
    concurrency = rows.reconciler.concurrency
    connections, caller, places = (
        store.connections_for_rows(),
        Caller(store.events, store.middlewares),
        asyncio.Semaphore(concurrency),
    )
    handling = Handling(rows, connections, caller, random.Random())  # noqa: S311 - nothing is decided with it
    now = await store.schedules.now()

    async def one(row: Any) -> str:
        async with places:
            started = rows.clock.elapsed()
            ended = (await handling.run(RowInHand(_unclaimed(rows.reconciler.name, row, now, started), started))).ended
        if isinstance(ended, BaseException):
            return f"raises {type_name(ended)}: {describe(ended)}"
        return shown(ended)

    try:
        return await asyncio.gather(*(one(row) for row in found))
    finally:
        caller.close()
        await connections.close()


def _unclaimed(reconciler: str, row: Any, now: datetime, started: float) -> ClaimedRow:
    """A listed row as its handler would see it after a claim. There is no lease that could expire."""
    key, state, due_since, attempts, values = row
    return ClaimedRow(
        reconciler=reconciler,
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
        trust=Trust(timedelta(days=1), started),
    )


async def dry_scan(scan: Scan[Any], cursor: Any, limit: int) -> DryRun:
    """The next items of a scan, each with the cursor behind it; they are not handled."""
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
    """A user's value as text: bounded, and with its secrets masked."""
    try:
        return clean(repr(item), MAX_SHOWN)
    except Exception as error:
        return f"<{type(item).__name__} that cannot be shown: {type_name(error)}>"
