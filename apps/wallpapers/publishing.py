"""Events on their way to NATS: an outbox of jobs, each enqueued in the transaction that moves its row to `processing`.

While NATS is away the job is tried again, under the same message id. When it has tried for long enough, or NATS will not have
the message, the row goes back to `stored` with what was wrong, and the sweep over missing events begins anew: so a row is in
`processing` only while its event is published or about to be, and no event is lost for want of a person.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from trueup import App, ConfigError, Context, Draft, GiveUp, Retry
from trueup.integrations.nats import Nats, NatsUnavailable, Stream

from . import rows
from .config import Config
from .events import SUBJECTS, UPLOADED, message_id, uploaded
from .rows import Facts, Tx, Upload

log = logging.getLogger("wallpapers")

RETRY = Retry(max_attempts=8, first="1s", factor=4, cap="5m")  # a quarter of an hour in all
REMEMBERED_FOR = timedelta(hours=2)  # at least


class Publisher:
    def __init__(self, app: App, config: Config) -> None:
        # From an attempt whose ack was lost, over the row's way back to `stored` and the next sweep, to the next attempt.
        gap = config.missing_after + config.every
        stream = Stream(config.stream, subjects=SUBJECTS, duplicate_window=max(REMEMBERED_FOR, 2 * gap))
        try:
            self.nats = Nats(app, config.nats_url, stream=stream, retry=RETRY)
        except ConfigError as error:
            raise ConfigError(f"NATS_URL: {error}") from None
        self._app = app
        self._ensured = False

        @app.job(name="announce_upload", retry=RETRY)
        async def announce(ctx: Context, wallpaper_id: str, event: dict[str, Any]) -> None:
            await self._announce(ctx, wallpaper_id, event)

        self._announce_job = announce

    async def prepare(self) -> None:
        """See to the stream. Raises ConfigError when it cannot serve; NATS may be down, and is asked again when it is needed."""
        try:
            await self._ensure()
        except NatsUnavailable as error:
            log.warning("NATS cannot be reached yet", extra={"error": str(error)})

    def event(self, upload: Upload, facts: Facts) -> Draft:
        """For `then=[…]` of the move to `processing`."""
        return self._announce_job.call(upload.id, uploaded(upload, facts))

    async def enqueue(self, tx: Tx, upload: Upload, facts: Facts) -> None:
        """The same in a transaction."""
        await self._announce_job.using(tx=tx).enqueue(upload.id, uploaded(upload, facts))

    async def aclose(self) -> None:
        await self.nats.aclose()

    async def _announce(self, ctx: Context, wallpaper_id: str, event: dict[str, Any]) -> None:
        try:
            await self._ensure()
            await self.nats.send(UPLOADED, event, message_id=message_id(wallpaper_id))
        except Exception as error:
            self._ensured = False  # the stream itself may be gone
            if not isinstance(error, GiveUp | ConfigError) and ctx.attempt < RETRY.max_attempts:
                raise
            async with ctx.transaction() as tx:
                await rows.put_back(tx, wallpaper_id, f"Event not published: {error}"[:500], now=self._app.clock.now())
            log.error("Event not published", extra={"wallpaper_id": wallpaper_id, "error": str(error)})

    async def _ensure(self) -> None:
        if not self._ensured:
            await self.nats.ensure_stream()
            self._ensured = True
