"""Objects that are not needed: older than the grace period, without a row, or with one that has failed.

Deleting by comparison is dangerous when one of the two sides is wrong: another database, another bucket, an outage that reads
like emptiness. So all of it is counted before anything is deleted, and too much is refused; each page is listed anew and its
rows are asked for anew right before it is deleted; and the storage itself refuses to delete what is not what was listed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from trueup import App

from . import rows
from .answers import Stored
from .config import Config
from .ids import PREFIX
from .storage import Storage

log = logging.getLogger("wallpapers")

ORPHANED_OBJECTS = "orphaned-objects"


class TooManyOrphans(Exception):
    """More of the bucket would be deleted than is allowed: a person should look."""


@dataclass(frozen=True)
class Batch:
    """The orphans of one page. `after` and `until` are the keys before it and at its end."""

    after: str
    until: str
    objects: tuple[Stored, ...]


@dataclass(frozen=True)
class Counted:
    objects: int
    orphans: int

    def check(self, max_fraction: float, few: int) -> None:
        """Raises TooManyOrphans. A few may be more of a small bucket than that; but never all of it: that is another database."""
        is_few = self.orphans <= few and self.orphans < self.objects
        if self.orphans > self.objects * max_fraction and not is_few:
            raise TooManyOrphans(
                f"{self.orphans} of {self.objects} objects have no row that needs them,"
                f" and {max_fraction:.0%} is the most that is deleted; if they are right, give --max-fraction"
            )


class Orphans:
    def __init__(self, app: App, storage: Storage, config: Config) -> None:
        self._app = app
        self._storage = storage
        self._grace = config.grace
        self._max_fraction = config.max_fraction
        self._few = config.few

    async def batches(self, after: str = "", *, check: bool = True) -> AsyncGenerator[Batch, None]:
        """From after this key on, once all was counted. Raises TooManyOrphans before the first, unless it only looks."""
        if check:
            (await self.count()).check(self._max_fraction, self._few)
        async with aclosing(self._pages(after)) as pages:
            async for batch, _ in pages:
                if batch.objects:
                    yield batch

    async def count(self) -> Counted:
        objects = orphans = 0
        async with aclosing(self._pages("")) as pages:
            async for batch, listed in pages:
                objects, orphans = objects + listed, orphans + len(batch.objects)
        return Counted(objects, orphans)

    async def remove(self, batch: Batch) -> list[str]:
        """Delete what is still so; the keys that are gone now."""
        listed = {each.key: each for each in await self._storage.find(PREFIX, after=batch.after)}
        unchanged = [each for each in batch.objects if listed.get(each.key) == each]
        removed = await self._storage.remove(await self._orphaned(unchanged))
        facts = {"deleted": len(removed), "kept": len(batch.objects) - len(removed), "until": batch.until}
        log.info("Orphaned objects deleted", extra=facts)
        return removed

    async def _pages(self, after: str) -> AsyncGenerator[tuple[Batch, int], None]:
        async with aclosing(self._storage.pages(PREFIX, after)) as pages:
            async for page in pages:
                orphans = await self._orphaned(page)
                yield Batch(after, page[-1].key, tuple(orphans)), len(page)
                after = page[-1].key

    async def _orphaned(self, objects: Sequence[Stored]) -> list[Stored]:
        async with self._app.transaction() as tx:
            wanted = await rows.wanted(tx, {owner(each.key) for each in objects})
            now = await self._app.now(tx)
        return [each for each in objects if owner(each.key) not in wanted and self._is_old(each, now)]

    def _is_old(self, stored: Stored, now: datetime) -> bool:
        return now - stored.modified_at > self._grace


def owner(key: str) -> str:
    """The id of the wallpaper that an object belongs to."""
    return key.partition("/")[0]


def declare(app: App, config: Config, orphans: Orphans) -> None:
    @app.scan(ORPHANED_OBJECTS, every=config.cleanup_every, run_at_start=False)
    async def orphaned_objects(cursor: str | None):  # type: ignore[no-untyped-def]
        async with aclosing(orphans.batches(cursor or "")) as batches:
            async for batch in batches:
                yield batch, batch.until

    @orphaned_objects.each
    async def remove(batch: Batch) -> None:
        await orphans.remove(batch)
