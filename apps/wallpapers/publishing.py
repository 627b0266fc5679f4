"""Events on their way to NATS: an outbox of jobs, each enqueued in the transaction that moves its row to `processing`.

While NATS is away the job is tried again, under the same message id. When it has tried for long enough, NATS will not have the
message, or a worker died in the last attempt, the row goes back to `stored` with what was wrong, in the transaction that makes
the job a dead letter; and the sweep over missing events begins anew. So a row is in `processing` only while its event is
published or about to be, and no event is lost because a person did not look.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from trueup import App, ConfigError, Draft, Exhausted, Retry
from trueup.integrations.nats import Nats, NatsUnavailable, Stream

from . import rows
from .config import Config
from .events import SUBJECTS, UPLOADED, message_id, uploaded
from .rows import Facts, Tx, Upload

log = logging.getLogger("wallpapers")

# A quarter of an hour in all. A stream that cannot serve (ConfigError) does not become better meanwhile.
RETRY = Retry(max_attempts=8, first="1s", factor=4, cap="5m", give_up_on=(ConfigError,))
ANNOUNCE = "announce_upload"
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

        @app.job(name=ANNOUNCE, retry=RETRY, exhausted=self._put_back)
        async def announce(wallpaper_id: str, event: dict[str, Any]) -> None:
            await self._announce(wallpaper_id, event)

        self._announce_job = announce

    async def prepare(self) -> None:
        """See to the stream. Raises ConfigError when it cannot serve; NATS may be down, and is asked again when it is needed."""
        try:
            await self._ensure()
        except NatsUnavailable as error:
            log.warning("NATS cannot be reached yet", extra={"error": str(error)})

    async def check(self) -> None:
        """Raises NatsUnavailable, or ConfigError, when nothing could be published now."""
        await self.nats.ensure_stream()

    def event(self, upload: Upload, facts: Facts) -> Draft:
        """For `then=[…]` of the move to `processing`."""
        return self._announce_job.call(upload.id, uploaded(upload, facts))

    async def enqueue(self, tx: Tx, upload: Upload, facts: Facts) -> None:
        """The same in a transaction."""
        await self._announce_job.using(tx=tx).enqueue(upload.id, uploaded(upload, facts))

    async def aclose(self) -> None:
        await self.nats.aclose()

    async def _announce(self, wallpaper_id: str, event: dict[str, Any]) -> None:
        try:
            await self._ensure()
            await self.nats.send(UPLOADED, event, message_id=message_id(wallpaper_id))
        except Exception:
            self._ensured = False  # the stream itself may be gone
            raise

    async def _put_back(self, dead: Exhausted) -> None:
        wallpaper_id, error = dead.arguments["wallpaper_id"], dead.error or dead.reason
        await rows.put_back(dead.tx, wallpaper_id, f"Event not published: {error}"[:500], now=self._app.clock.now())
        log.error("Event not published", extra={"wallpaper_id": wallpaper_id, "error": error})

    async def _ensure(self) -> None:
        if not self._ensured:
            await self.nats.ensure_stream()
            self._ensured = True
