"""Taking a picture in: looked at, put into the bucket, stored, announced. Each step commits before the next one begins.

Wherever it breaks off, the row says how far it came, and a sweep goes on from there. The client may send the picture
again: from the moment the row is `uploading`, only the same bytes are taken for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing

from trueup import App

from . import rows
from .content import Content, received
from .gallery import Gallery
from .images import HEAD, MAX_IMAGE_BYTES, Picture, sniff
from .publishing import Publisher
from .recovering import key_of
from .rows import Facts, Wallpaper
from .watch import Watch

DONE = ("stored", "processing", "completed")


class Refused(Exception):
    """The row does not wait for this picture (any more). `row` says how it is with it."""

    def __init__(self, row: Wallpaper, why: str) -> None:
        super().__init__(why)
        self.row = row


class Intake:
    def __init__(self, app: App, gallery: Gallery, publisher: Publisher, watch: Watch) -> None:
        self._app = app
        self._gallery = gallery
        self._publisher = publisher
        self._watch = watch

    async def take(self, wallpaper_id: str, chunks: AsyncIterable[bytes]) -> Wallpaper | None:
        """The row afterwards; None when there is none. The same picture twice is one picture, and no error.

        Raises Rejected, TooLarge, Refused; StorageUnavailable when it has to be sent once more.
        """
        row = await self._get(wallpaper_id)
        if row is None:
            return None
        if row.upload_state == "failed":
            raise Refused(row, f"the upload has failed: {row.processing_error}")
        async with aclosing(_recognised(chunks)) as recognised, received(recognised, MAX_IMAGE_BYTES) as content:
            if row.upload_state in DONE and row.content_hash == content.sha256:
                return row
            facts = await self._facts(wallpaper_id, content, await self._gallery.look(content))
            return await self._store(wallpaper_id, facts, content)

    async def _store(self, wallpaper_id: str, facts: Facts, content: Content) -> Wallpaper | None:
        now = self._app.clock.now()
        async with self._app.transaction() as tx:
            row = await rows.begin(tx, wallpaper_id, facts, now=now)
        if row is None:
            return await self._otherwise(wallpaper_id, facts)
        await self._gallery.storage.put(facts.storage_key, content, facts.mime_type)
        async with self._app.transaction() as tx:
            row = await rows.store(tx, wallpaper_id, facts, now=now)
        if row is None:  # a sweep was faster
            return await self._otherwise(wallpaper_id, facts)
        if row.upload_state == "failed":
            self._watch.failed(wallpaper_id, row.processing_error)
            raise Refused(row, f"the upload has failed: {row.processing_error}")
        async with self._app.transaction() as tx:
            announced = await rows.process(tx, wallpaper_id, now=now)
            if announced is not None:
                await self._publisher.enqueue(tx, announced, facts)
        return announced or await self._get(wallpaper_id)

    async def _otherwise(self, wallpaper_id: str, facts: Facts) -> Wallpaper | None:
        """How it is with a row that did not wait for us."""
        row = await self._get(wallpaper_id)
        if row is not None and row.upload_state == "failed":
            raise Refused(row, f"the upload has failed: {row.processing_error}")
        if row is not None and row.content_hash != facts.content_hash:
            raise Refused(row, f"{wallpaper_id} is {row.upload_state} with another picture")
        return row

    async def _facts(self, wallpaper_id: str, content: Content, picture: Picture) -> Facts:
        async with self._app.transaction() as tx:
            now = await self._app.now(tx)
        return Facts(
            content_hash=content.sha256,
            file_type=picture.kind.file_type,
            mime_type=picture.kind.mime_type,
            file_size_bytes=content.size,
            width=picture.width,
            height=picture.height,
            storage_key=key_of(wallpaper_id, picture.kind.file_type),
            storage_bucket=self._gallery.storage.bucket,
            uploaded_at=now,
        )

    async def _get(self, wallpaper_id: str) -> Wallpaper | None:
        async with self._app.transaction() as tx:
            return await rows.get(tx, wallpaper_id)


async def _recognised(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The same bytes. Raises UnsupportedType at the first of them: the end of a video need not be awaited."""
    head = b""
    async for chunk in chunks:
        if len(head) < HEAD:
            head += chunk
            if len(head) < HEAD:
                continue
            sniff(head)
            yield head
        else:
            yield chunk
    if len(head) < HEAD:
        sniff(head)
        yield head
