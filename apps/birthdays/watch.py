"""What is counted, and when somebody is told: the application's metrics and alerts, from trueup's events."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trueup import App
from trueup.events import Events, RowChanged, SweepCompleted

log = logging.getLogger("birthdays")

GRACE = timedelta(minutes=5)  # later than this is late
MANY_LATE = 10  # more late messages than this in one sweep: we are recovering from something
SILENT_FOR = timedelta(minutes=5)  # without a sweep for so long, nobody sends anything


@dataclass
class Numbers:
    processed: int = 0
    failed: int = 0
    late: int = 0
    lateness_s: float = 0.0
    recovery_mode: bool = False
    duration_ms: float = 0.0

    @property
    def average_lateness_s(self) -> float:
        return self.lateness_s / self.processed if self.processed else 0.0


class Watch:
    """Counts what this process sends; tells once per sweep that it is catching up."""

    def __init__(self, events: Events, reconciler: str) -> None:
        self.numbers = Numbers()
        self._reconciler = reconciler
        self._late = 0
        self._oldest_s = 0.0
        events.subscribe(self._row, RowChanged)
        events.subscribe(self._sweep, SweepCompleted)

    def _row(self, event: Any) -> None:
        if event.reconciler != self._reconciler or event.state_to not in ("COMPLETED", "DEAD"):
            return
        numbers, seconds = self.numbers, event.lateness_ms / 1000
        if event.state_to == "DEAD":
            numbers.failed += 1
            return
        numbers.processed += 1
        numbers.lateness_s += seconds
        if seconds > GRACE.total_seconds():
            numbers.late += 1
            self._late += 1
            self._oldest_s = max(self._oldest_s, seconds)
            if self._late > MANY_LATE and not numbers.recovery_mode:
                numbers.recovery_mode = True
                facts = {"late_events": self._late, "oldest_event_age": f"{self._oldest_s / 3600:.1f}h"}
                log.error("Recovery mode detected", extra=facts)

    def _sweep(self, event: Any) -> None:
        if event.reconciler != self._reconciler:
            return
        self._late, self._oldest_s = 0, 0.0
        self.numbers.recovery_mode = False
        self.numbers.duration_ms = event.duration_ms
        log.info(
            "Birthday messages sent",
            extra={
                "processed": event.changed,
                "failed": event.retry + event.quarantined,
                "duration_ms": event.duration_ms,
                "events_per_second": event.rows_per_second,
            },
        )


@dataclass(frozen=True)
class Silence:
    """Since when nobody has swept, as the database knows it: seen from outside the worker, which may be what is down."""

    last_run: datetime | None
    minutes_since_last_run: float | None

    @property
    def too_long(self) -> bool:
        return self.minutes_since_last_run is None or self.minutes_since_last_run * 60 > SILENT_FOR.total_seconds()


async def silence(app: App, reconciler: str) -> Silence:
    last_run = (await app.reconcilers.show(reconciler))["last_swept_at"]
    if last_run is None:
        return Silence(None, None)
    return Silence(last_run, (datetime.now(UTC) - last_run).total_seconds() / 60)


async def check(app: App, reconciler: str) -> Silence:
    """Tell somebody when nobody sends anything any more."""
    found = await silence(app, reconciler)
    if found.too_long:
        log.critical(
            "Scheduler appears to be down",
            extra={
                "last_run": None if found.last_run is None else found.last_run.isoformat(),
                "minutes_since_last_run": found.minutes_since_last_run,
            },
        )
    return found
