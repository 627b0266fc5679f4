"""What is counted, what is logged about each run, and when an alert is sent.

The metrics are served with trueup's own, by every process that sends. They count what that process has done; alerts come from
looking at the database, which knows what the whole fleet does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import Counter, Gauge

from trueup import App
from trueup.events import RowChanged, RowQuarantined, RowRetried, SweepCompleted

from . import people

log = logging.getLogger("birthdays")

GRACE = timedelta(minutes=5)  # later than this is late
MANY_LATE = 10  # more late messages than this: we are recovering from something
SILENT_FOR = timedelta(minutes=5)  # without a run for this long, nothing is sent
LOOK_EVERY = 30.0  # seconds between looks

PROCESSED = Counter("birthdays_processed", "Messages sent.")
FAILED = Counter("birthdays_failed", "Attempts that failed.")
LATE = Counter("birthdays_late", "Messages sent more than five minutes late.")
AVERAGE_LATENESS = Gauge("birthdays_average_lateness_seconds", "Of the messages sent by the last run that sent any.")
DURATION = Gauge("birthdays_run_duration_seconds", "How long the last run took that found anything to do.")
RECOVERY_MODE = Gauge("birthdays_recovery_mode", "1 while more than ten late messages wait.")


@dataclass
class Run:
    processed: int = 0
    failed: int = 0
    late: int = 0
    lateness: timedelta = timedelta()


class Watch:
    """Counts what this process sends, run by run."""

    def __init__(self, app: App, reconciler: str) -> None:
        self._app = app
        self._reconciler = reconciler
        self._run = Run()
        self._recovering = False
        for count, classes in (
            (self._changed, [RowChanged]),
            (self._failed, [RowRetried, RowQuarantined]),
            (self._completed, [SweepCompleted]),
        ):
            app.events.subscribe(self._if_ours(count), *classes)

    def _if_ours(self, count: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda event: count(event) if event.reconciler == self._reconciler else None

    def _changed(self, event: RowChanged) -> None:
        if event.state_to == "DEAD":
            self._failed(event)
        elif event.state_to == "COMPLETED":
            lateness = timedelta(milliseconds=event.lateness_ms)
            late = lateness > GRACE
            self._run.processed += 1
            self._run.late += late
            self._run.lateness += lateness
            PROCESSED.inc()
            LATE.inc(late)

    def _failed(self, _: Any) -> None:
        self._run.failed += 1
        FAILED.inc()

    def _completed(self, event: SweepCompleted) -> None:
        run, self._run = self._run, Run()
        DURATION.set(event.duration_ms / 1000)
        if run.processed:
            AVERAGE_LATENESS.set(run.lateness.total_seconds() / run.processed)
        seconds = event.duration_ms / 1000
        log.info(
            "Birthday messages sent",
            extra={
                "processed": run.processed,
                "failed": run.failed,
                "late": run.late,
                "duration_ms": round(event.duration_ms),
                "events_per_second": round(run.processed / seconds, 1) if seconds else 0.0,
            },
        )

    async def look_for_late(self) -> None:
        """Send an alert, once, when there is a downtime to make up for."""
        async with self._app.transaction() as tx:
            late, oldest = await people.late(tx, GRACE, now=self._app.clock.now())
        before, self._recovering = self._recovering, late > MANY_LATE
        RECOVERY_MODE.set(self._recovering)
        if self._recovering and not before:
            facts = {"late_events": late, "oldest_event_age": f"{oldest / timedelta(hours=1):.1f}h"}
            log.error("Recovery mode detected", extra=facts)

    async def look_for_silence(self) -> None:
        """Send an alert when messages are no longer sent. For processes that do not send: those that do may be what is down."""
        found = await self.silence()
        if found.too_long:
            facts = {"last_run": found.last_run, "minutes_since_last_run": found.minutes_since_last_run}
            log.critical("Scheduler appears to be down", extra=facts)

    async def silence(self) -> Silence:
        """How long ago a process last looked for messages."""
        async with self._app.transaction() as tx:
            now = await self._app.now(tx)
        record = await self._app.reconcilers.show(self._reconciler, sweeps=1)
        # A run that is under way, or a rest because the receiver is down, is a sign of life, too: until its time is over.
        until = [record["paused_until"], *(held["lease_until"] for held in record["held_by"])]
        signs = [
            record["last_swept_at"],
            *(sweep["ended_at"] for sweep in record["sweeps"]),
            *(min(moment, now) for moment in until if moment is not None),
        ]
        last_run = max((sign for sign in signs if sign is not None), default=None)
        return Silence(last_run, None if last_run is None else now - last_run)


@dataclass(frozen=True)
class Silence:
    last_run: datetime | None
    lasted: timedelta | None

    @property
    def minutes_since_last_run(self) -> float | None:
        return None if self.lasted is None else round(self.lasted / timedelta(minutes=1), 1)

    @property
    def too_long(self) -> bool:
        return self.lasted is None or self.lasted > SILENT_FOR


async def keep_looking(look: Callable[[], Awaitable[None]]) -> None:
    """Again and again, whatever happens; the first time after a while."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        try:
            await look()
        except Exception as error:  # the database is away, say
            log.warning("Look failed", extra={"error": f"{type(error).__name__}: {error}"})
