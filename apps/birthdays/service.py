"""The application: one reconciler over `events`, and what watches it.

A message that is due is a row whose time has come. That is the whole of normal work, and of recovery after a day of downtime:
the same rows, found by the same statement, oldest first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from trueup import Again, App, ConfigError, Context, Delete, Failed, Retry, To
from trueup.integrations.webhooks import DeliveryError, DeliveryFailed, DeliveryPostponed, DeliveryRefused, Webhook
from trueup.web.database import prepare_database
from trueup.web.service import database_down, own_app

from . import people
from .config import Config
from .delivery import Patience, ReceiverAtFault, send, webhook
from .planning import following
from .watch import Watch, keep_looking

log = logging.getLogger("birthdays")

RECONCILER = "send_birthday_message"
LATE = timedelta(minutes=60)
SOON = 90  # the first retry comes so much sooner than the last one: after two minutes of three hours
AT_FAULT = timedelta(hours=1)  # after its attempts a message waits so long each time for a receiver that refuses all


@dataclass(frozen=True)
class Event:
    id: UUID
    user_id: int
    target_year: int
    target_timestamp_utc: datetime


@dataclass(frozen=True)
class Service:
    app: App
    config: Config
    hook: Webhook
    watch: Watch

    async def prepare(self) -> None:
        """Make the tables, and plan anew what other rules have planned; any number of processes may do so at once.

        Raises ConfigError when trueup's own tables are not there.
        """
        await prepare_database(self.app, people.make_tables)
        more = True
        while more:
            async with self.app.transaction() as tx:
                more = await people.plan_some_anew(tx, self.config.rules, now=self.app.clock.now())

    async def down(self) -> dict[str, str]:
        """What cannot be reached, and why."""
        return await database_down(self.app)

    @asynccontextmanager
    async def watching_for_late(self) -> AsyncIterator[None]:
        """Around sending. The first look is before the first message, so that nothing is made up for unnoticed."""
        await self.watch.look_for_late()
        looking = asyncio.create_task(keep_looking(self.watch.look_for_late))
        try:
            yield
        finally:
            looking.cancel()

    async def close(self) -> None:
        await self.hook.aclose()
        await self.app.close()


def build_configured() -> Service:
    """As the environment says. Raises ConfigError."""
    return build(Config.from_environment())


def build(config: Config, app: App | None = None) -> Service:
    """Raises ConfigError when it cannot be configured so."""
    hook, patience = webhook(config), Patience()
    app = app or own_app("birthdays")
    events = app.table("events", key="id", state="status", version="version")

    @app.job
    async def plan_next_year(user_id: int, year: int) -> None:
        """After a message that could not be sent: next year's is due all the same."""
        async with app.transaction() as tx:
            await people.plan_next(tx, config.rules, user_id, year)

    def failed(event: Event, failed: Failed) -> To:
        return To("FAILED", attempts=failed.attempt, last_error=_told(failed), next_attempt_at=failed.again_at)

    def given_up(event: Event, failed: Failed) -> To | Again:
        if isinstance(failed.error, ReceiverAtFault):
            return Again(AT_FAULT)
        facts = {"event_id": str(event.id), "attempts": failed.attempt, "last_error": _told(failed)}
        log.error("Event moved to DLQ", extra=facts)
        then = [plan_next_year.call(event.user_id, event.target_year)]
        return To("DEAD", then=then, attempts=failed.attempt, last_error=_told(failed), next_attempt_at=None)

    @events.reconcile(
        "PENDING",
        "FAILED",
        due_at="target_timestamp_utc",
        claimed_as="PROCESSING",
        name=RECONCILER,
        every=config.every,
        run_at_start=True,
        batch=100,
        concurrency=config.concurrency,
        rate=config.rate,
        lease_for=config.lease_for,
        # The last of the three attempts comes hours later: a receiver that is away over lunch costs no message.
        retry=Retry(
            max_attempts=3,
            first=config.retry_over / SOON,
            factor=SOON,
            cap=config.retry_over,
            give_up_on=(DeliveryRefused, ConfigError),
        ),
        failed=failed,
        exhausted=given_up,
        pause_after=5,
        pause_on="any",  # a receiver that refuses message after message is at fault, not they are
        pause_for=config.pause_for,
    )
    async def send_birthday_message(event: Event, *, ctx: Context) -> Again | Delete | None:
        async with app.transaction() as tx:
            user = await people.get(tx, event.user_id)
            began_at = await app.now(tx)
        if user is None:
            return Delete()
        # Reckoned before anything is sent: whatever may be wrong with a date or a zone must not make a sent message a failed one.
        next_year = following(config.rules.birthday(user.date_of_birth, user.timezone), event.target_year)
        began = time.monotonic()
        try:
            await send(hook, user, str(event.id))
        except DeliveryPostponed as postponed:
            if patience.is_about_everybody(str(event.id)):
                return Again(postponed.after, everybody=True)
            raise DeliveryFailed(f"{postponed}, and others are taken", postponed.status) from None
        patience.took(str(event.id))
        sent_at = app.clock.now() or began_at + timedelta(seconds=time.monotonic() - began)
        sent = To("COMPLETED", executed_at=sent_at, attempts=ctx.attempt, last_error=None, next_attempt_at=None)
        async with ctx.transaction(sent) as tx:
            await people.plan(tx, user.id, next_year)
        if sent_at - event.target_timestamp_utc > LATE:
            _tell_late(event, sent_at)
        return None

    return Service(app, config, hook, Watch(app, RECONCILER))


def _told(failed: Failed) -> str:
    """For people: what the receiver said, without the name of a Python class before it."""
    return failed.message.partition(": ")[2] if isinstance(failed.error, DeliveryError) else failed.message


def _tell_late(event: Event, now: datetime) -> None:
    lateness = now - event.target_timestamp_utc
    log.warning(
        "Late event execution (recovery)",
        extra={
            "event_id": str(event.id),
            "user_id": event.user_id,
            "target_time": event.target_timestamp_utc.isoformat(),
            "actual_time": now.isoformat(),
            "lateness_minutes": round(lateness / timedelta(minutes=1)),
            "lateness_hours": round(lateness / timedelta(hours=1), 1),
            "reason": "no process ran when it was due, or the receiver did not take it",
        },
    )
