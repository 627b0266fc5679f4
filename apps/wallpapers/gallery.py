"""Looking at pictures: decoding takes time and memory, so only a few are decoded at a time, each in a process of its own."""

from __future__ import annotations

import asyncio

from trueup import GiveUp

from .content import Content, TooLarge
from .decoding import Decoder
from .images import MAX_IMAGE_BYTES, Picture, Rejected
from .recovering import chosen, facts_of, prefix_of
from .rows import Facts, Upload
from .storage import Storage

AT_A_TIME = 2  # the largest takes 130 MB while it is decoded


class Gallery:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._decoding = asyncio.Semaphore(AT_A_TIME)
        self._idle: list[Decoder] = []

    async def look(self, content: Content) -> Picture:
        """Raises Rejected, or Undecided."""
        async with self._decoding:
            decoder = self._idle.pop() if self._idle else await asyncio.to_thread(Decoder)
            try:
                return await decoder.look(content.file)
            finally:
                if decoder.alive:
                    self._idle.append(decoder)

    async def facts(self, upload: Upload) -> Facts | None:
        """Everything about the object of a row, from the object itself; None when the storage says that there is none.

        Raises GiveUp when it is not a wallpaper, or not the one that the row is about; StorageUnavailable when the storage cannot be asked.
        """
        stored = chosen(upload, await self.storage.find(prefix_of(upload.id)))
        if stored is None:
            if upload.storage_key is not None:
                await self.storage.check_absent(upload.storage_key)
            return None
        try:
            async with self.storage.get(stored, MAX_IMAGE_BYTES) as content:
                picture = await self.look(content)
                return facts_of(upload, stored, self.storage.bucket, content, picture)
        except (Rejected, TooLarge) as error:
            raise GiveUp(f"{stored.key}: {error}") from None
