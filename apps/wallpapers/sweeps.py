"""The sweeps over rows, every five minutes: uploads that got stuck, events that were not published, intents that came to nothing.

Every instance sweeps, and each takes other rows. No row is locked while the storage is asked. A row that a sweep has moved is
fresh: the next sweep over its new state comes to it when it is old enough again, not in the same cycle.
"""

from __future__ import annotations

from datetime import timedelta

from trueup import Again, App, Context, Failed, GiveUp, Retry, Stay, To

from . import rows
from .config import Config
from .gallery import Gallery
from .publishing import Publisher
from .recovering import absent
from .rows import Facts, Upload
from .storage import NotThere, StorageUnavailable

STUCK_UPLOADS = "stuck-uploads"
MISSING_EVENTS = "missing-events"
ORPHANED_INTENTS = "orphaned-intents"
CYCLE = (STUCK_UPLOADS, MISSING_EVENTS, ORPHANED_INTENTS)

PAUSE_AFTER = 5  # failures of the storage in a row: it is down, not the rows bad
LATER = timedelta(minutes=1)


class Duplicate(Exception):
    """The user has this picture already."""

    def __init__(self, survivor: str) -> None:
        super().__init__(survivor)
        self.survivor = survivor


def declare(app: App, config: Config, gallery: Gallery, publisher: Publisher) -> None:
    wallpapers = app.table("wallpapers", key="id", state="upload_state", changed_at="state_changed_at")

    def not_its_fault(upload: Upload, failed: Failed) -> Again | None:
        """No row is set aside because the storage was down, or contradicts itself; what else fails over and over is."""
        return Again(LATER) if isinstance(failed.error, StorageUnavailable | NotThere) else None

    @wallpapers.reconcile(
        "uploading",
        stale_for=config.stuck_after,
        name=STUCK_UPLOADS,
        every=config.every,
        run_at_start=True,
        lease_for=config.lease_for,
        retry=Retry(max_attempts=5, first="1s", factor=4),
        exhausted=not_its_fault,
        pause_after=PAUSE_AFTER,
        pause_for=config.pause_for,
    )
    async def recover_stuck_upload(upload: Upload, *, ctx: Context) -> To | Stay | None:
        facts = await gallery.facts(upload)
        if facts is None:
            return absent(upload)
        return await unless_duplicate(upload, facts, To("stored", facts.columns()), ctx)

    @wallpapers.reconcile(
        "stored",
        stale_for=config.missing_after,
        name=MISSING_EVENTS,
        every=config.every,
        run_at_start=True,
        lease_for=config.lease_for,
        retry=Retry(max_attempts=5, first="1s", factor=4),
        exhausted=not_its_fault,
        pause_after=PAUSE_AFTER,
        pause_for=config.pause_for,
    )
    async def publish_missing_event(upload: Upload, *, ctx: Context) -> To | None:
        if upload.facts is not None:
            return To("processing", then=[publisher.event(upload, upload.facts)], processing_error=None)
        facts = await gallery.facts(upload)  # stored by other means, or before these columns were: never with nulls
        if facts is None:
            raise GiveUp("the row is incomplete, and the storage has no object for it")
        published = To("processing", facts.columns(), then=[publisher.event(upload, facts)], processing_error=None)
        return await unless_duplicate(upload, facts, published, ctx)

    wallpapers.delete(
        "initiated", stale_for=config.intent_for, name=ORPHANED_INTENTS, every=config.every, run_at_start=True
    )


async def unless_duplicate(upload: Upload, facts: Facts, outcome: To, ctx: Context) -> To | None:
    """Move the row on; or, when the user has this picture in another row already, to `failed` with a link to it."""
    try:
        async with ctx.transaction(outcome) as tx:
            survivor = await rows.survivor_of(tx, upload, facts.content_hash)
            if survivor is not None:
                raise Duplicate(survivor)
    except Duplicate as found:
        return To("failed", processing_error=rows.duplicate_error(found.survivor), duplicate_of=found.survivor)
    return None
