"""The jobs that need no row by row: reminders, briefings and the cleanup are statements over many rows, each fenced."""

from __future__ import annotations

import logging
from datetime import timedelta

from trueup import App, Context, Lease, Tick

from . import briefings, cleanup, database, reminders, runs
from .config import Config
from .constants import BRIEFING_BATCH_SIZE, CLEANUP_BATCH_SIZE, MESSAGES_KEPT_DAYS
from .dates import clocks
from .plan import BRIEFING_GENERATION, CHECKPOINT_REMINDER, CONVERSATION_CLEANUP
from .retrying import retrying

log = logging.getLogger("pulse")


def declare(app: App, config: Config) -> None:
    @runs.cron(app, config, CHECKPOINT_REMINDER)
    async def checkpoint_reminder(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, CHECKPOINT_REMINDER, tick, lease, ctx, "checkpoint reminders") as run:

            async def remind() -> int:
                async with run.transaction() as tx:
                    return await reminders.remind(tx, (await database.time_of(app, tx)).date())

            run.succeeded = await retrying("Checkpoint reminders", remind)

    @runs.cron(app, config, BRIEFING_GENERATION)
    async def briefing_generation(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, BRIEFING_GENERATION, tick, lease, ctx, "briefings") as run:

            async def make_some() -> int:
                async with run.transaction() as tx:
                    shown, unknown = clocks(await briefings.zones(tx), await database.time_of(app, tx))
                    run.failed_keys = set(unknown)
                    if unknown:
                        log.error("Unknown time zones", extra={**run.facts, "timezones": unknown[:10]})
                    return await briefings.make_some(tx, shown, BRIEFING_BATCH_SIZE)

            made = BRIEFING_BATCH_SIZE
            while made == BRIEFING_BATCH_SIZE:
                made = await retrying("Briefings", make_some)
                run.succeeded += made

    @runs.cron(app, config, CONVERSATION_CLEANUP)
    async def conversation_cleanup(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, CONVERSATION_CLEANUP, tick, lease, ctx, "conversation cleanup") as run:

            async def delete_some() -> int:
                async with run.transaction() as tx:
                    before = await database.time_of(app, tx) - timedelta(days=MESSAGES_KEPT_DAYS)
                    return await cleanup.delete_some(tx, before, CLEANUP_BATCH_SIZE)

            while deleted := await retrying("Conversation cleanup", delete_some):
                run.succeeded += deleted
