"""What is counted about wallpapers, and when an alert is sent. Served with trueup's own metrics, by every process that sweeps."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from prometheus_client import Counter, Gauge

from trueup import App
from trueup.events import Event, RowChanged

from . import rows

log = logging.getLogger("wallpapers")

REASONS = {  # what a sweep gives up for; the row's `processing_error` says which
    "stuck-uploads": "its object is not there, or the user has this picture already",
    "missing-events": "the user has this picture already",
}
LOOK_EVERY = 30.0  # seconds

STUCK = Gauge("wallpapers_stuck_in_processing", "Wallpapers that have been processing for longer than they should.")
OLDEST = Gauge("wallpapers_oldest_in_processing_seconds", "For how long the first of those has been.")


FAILED = Counter("wallpapers_failed", "Uploads that went to `failed`.")


class Watch:
    def __init__(self, app: App, processing_for: timedelta) -> None:
        self._app = app
        self._processing_for = processing_for
        app.events.subscribe(self._changed, RowChanged)

    def failed(self, wallpaper_id: str, reason: str | None, **facts: str) -> None:
        """A row is `failed` now: nothing becomes of this upload any more."""
        FAILED.inc()
        log.warning("Upload failed", extra={"wallpaper_id": wallpaper_id, "reason": reason, **facts})

    def _changed(self, event: Event) -> None:
        assert isinstance(event, RowChanged)
        if event.state_to == "failed" and event.reconciler in REASONS:
            self.failed(event.key, REASONS[event.reconciler], sweep=event.reconciler)

    async def look(self) -> int:
        """How many are stuck in `processing`. They are reported and left alone: the program that processes them may be at work on them."""
        async with self._app.transaction() as tx:
            stuck, oldest = await rows.stuck_in_processing(tx, self._processing_for, now=self._app.clock.now())
        STUCK.set(stuck)
        OLDEST.set(oldest.total_seconds())
        if stuck:
            facts = {"stuck": stuck, "oldest_age_seconds": round(oldest.total_seconds())}
            log.warning("Wallpapers stuck in processing", extra=facts)
        return stuck

    async def keep_looking(self) -> None:
        """Again and again, whatever happens."""
        while True:
            try:
                await self.look()
            except Exception as error:  # the database is away, say
                log.warning("Look failed", extra={"error": f"{type(error).__name__}: {error}"})
            await asyncio.sleep(LOOK_EVERY)
