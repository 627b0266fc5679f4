"""The jobs that need no row by row: reminders, briefings and the cleanup are statements over many rows, each fenced."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from trueup import App, Context, Lease, Tick

from . import briefings, cleanup, reminders, runs
from .config import Config
from .constants import BRIEFING_BATCH_SIZE, CLEANUP_BATCH_SIZE, MESSAGES_KEPT_DAYS
from .database import Tx
from .dates import clocks
from .plan import BRIEFING_GENERATION, CHECKPOINT_REMINDER, CONVERSATION_CLEANUP
from .retrying import retrying
from .sending import Sender

log = logging.getLogger("pulse")


def declare(app: App, config: Config, sender: Sender) -> None:
    @runs.cron(app, config, CHECKPOINT_REMINDER)
    async def checkpoint_reminder(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, CHECKPOINT_REMINDER, tick, lease, ctx, "checkpoint reminders") as run:

            async def remind() -> int:
                async with run.transaction() as tx:
                    made = await reminders.remind(tx, (await app.now(tx)).date())
                    await sender.remind(tx, made)
                return len(made)

            run.succeeded = await retrying("Checkpoint reminders", remind)
            log.info("Found %d checkpoints to remind of", run.succeeded, extra={**run.facts, "found": run.succeeded})

    @runs.cron(app, config, BRIEFING_GENERATION)
    async def briefing_generation(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, BRIEFING_GENERATION, tick, lease, ctx, "briefings") as run:

            async def make_some() -> int:
                async with run.transaction() as tx:
                    shown, unknown = clocks(await briefings.zones(tx), await app.now(tx))
                    run.failed_keys = set(unknown)
                    if unknown:
                        log.error("Unknown time zones", extra={**run.facts, "timezones": unknown[:10]})
                    return await briefings.make_some(tx, shown, BRIEFING_BATCH_SIZE)

            await run.in_batches("Briefings", make_some, least=BRIEFING_BATCH_SIZE)
            log.info("Found %d users to brief", run.succeeded, extra={**run.facts, "found": run.succeeded})

    @runs.cron(app, config, CONVERSATION_CLEANUP)
    async def conversation_cleanup(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, CONVERSATION_CLEANUP, tick, lease, ctx, "conversation cleanup") as run:

            async def before(tx: Tx) -> datetime:
                return await app.now(tx) - timedelta(days=MESSAGES_KEPT_DAYS)

            async def delete_messages() -> int:
                async with run.transaction() as tx:
                    return await cleanup.delete_some(tx, await before(tx), CLEANUP_BATCH_SIZE)

            async def delete_conversations() -> int:
                async with run.transaction() as tx:
                    return await cleanup.delete_some_empty(tx, await before(tx), CLEANUP_BATCH_SIZE)

            async with app.transaction() as tx:
                messages, conversations = await cleanup.waiting(tx, await before(tx))
            facts = {**run.facts, "messages": messages, "conversations": conversations}
            log.info("Found %d old messages and %d empty conversations", messages, conversations, extra=facts)
            await run.in_batches("Conversation cleanup", delete_messages)
            await run.in_batches("Conversation cleanup", delete_conversations)
