"""Made-up uploads: most go well, and of the others some break off at each step an upload has."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from io import BytesIO
from typing import Any

import httpx
from PIL import Image

from apps.wallpapers import rows
from apps.wallpapers.content import received
from apps.wallpapers.ids import new_id
from apps.wallpapers.images import JPEG, MAX_IMAGE_BYTES, SMALLEST
from apps.wallpapers.recovering import key_of
from apps.wallpapers.rows import Facts
from apps.wallpapers.service import Service
from apps.wallpapers.storage import StorageUnavailable

PAUSE = 0.15  # seconds between two uploads


class Traffic:
    """`planned` says what must have become of all of it in the end, by state; what comes to nothing is not in it."""

    def __init__(self, service: Service, api: str, seed: int) -> None:
        self._service = service
        self._random = random.Random(seed)  # noqa: S311 - made-up traffic
        self._http = httpx.AsyncClient(base_url=api, timeout=30)
        self.planned: Counter[str] = Counter()
        self.begun: Counter[str] = Counter()
        self.taken: set[str] = set()  # rows whose upload was answered with 200
        self._kinds: list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = [
            (60, self.whole),
            (8, self.duplicate),
            (6, self.rejected),
            (8, self.intent_only),
            (8, self.without_object),
            (10, self.without_stored),
            (8, self.without_event),
            (4, self.object_only),
        ]

    @property
    def uploads(self) -> int:
        """How many were begun: the same picture sent twice is two."""
        return self.begun.total() + self.begun["duplicate"]

    @property
    def came_to_nothing(self) -> int:
        """Videos that were refused, intents without an upload, and objects without a row."""
        return sum(self.begun[kind] for kind in ("rejected", "intent_only", "object_only"))

    async def aclose(self) -> None:
        await self._http.aclose()

    async def run(self, until: asyncio.Event) -> None:
        weights, kinds = zip(*self._kinds, strict=True)
        while not until.is_set():
            (kind,) = self._random.choices(kinds, weights)
            self.begun[kind.__name__] += 1
            await kind()
            await asyncio.sleep(PAUSE)

    # -- over the API -------------------------------------------------------------------------------------------------

    async def whole(self) -> None:
        await self._insist(await self._intent(), self._picture())
        self.planned["processing"] += 1

    async def duplicate(self) -> None:
        """Twice by the same user, in two rows: the second one fails with a link to the first."""
        user, data = self._user(), self._picture()
        for state in ("processing", "failed"):
            await self._insist(await self._intent(user), data)
            self.planned[state] += 1

    async def rejected(self) -> None:
        """A video: refused, and its intent comes to nothing."""
        answer = await self._put(await self._intent(), b"\x00\x00\x00\x18ftypmp42" + bytes(5000))
        assert answer.status_code == 415, answer.text

    async def intent_only(self) -> None:
        await self._intent()

    async def _intent(self, user: str | None = None) -> str:
        answer = await self._http.post("/wallpapers", json={"user_id": user or self._user()})
        return str(answer.raise_for_status().json()["id"])

    async def _put(self, wallpaper_id: str, data: bytes) -> httpx.Response:
        return await self._http.put(f"/wallpapers/{wallpaper_id}/content", content=data)

    async def _insist(self, wallpaper_id: str, data: bytes) -> None:
        """As a client does that is told to send it again."""
        while (answer := await self._put(wallpaper_id, data)).status_code == 503:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.5)
        assert answer.status_code in (200, 409), answer.text
        if answer.status_code == 200:
            self.taken.add(wallpaper_id)

    # -- by a process that dies on the way: what is before is committed, what is after never happens --------------------

    async def without_object(self) -> None:
        """Dead before the object was written: nothing can be recovered."""
        await self._break_off("begin")
        self.planned["failed"] += 1

    async def without_stored(self) -> None:
        await self._break_off("put")
        self.planned["processing"] += 1

    async def without_event(self) -> None:
        await self._break_off("store")
        self.planned["processing"] += 1

    async def object_only(self) -> None:
        """An object without a row."""
        async with received(_once(self._picture()), MAX_IMAGE_BYTES) as content:
            await self._stubbornly(
                lambda: self._service.storage.put(key_of(new_id(), JPEG.file_type), content, JPEG.mime_type)
            )

    async def _break_off(self, after: str) -> None:
        app, storage = self._service.app, self._service.storage
        async with received(_once(self._picture()), MAX_IMAGE_BYTES) as content:
            async with app.transaction() as tx:
                row = await rows.create(tx, self._user(), "broken off.jpg")
                facts = Facts(
                    content_hash=content.sha256,
                    file_type=JPEG.file_type,
                    mime_type=JPEG.mime_type,
                    file_size_bytes=content.size,
                    width=SMALLEST[0],
                    height=SMALLEST[1],
                    storage_key=key_of(row.id, JPEG.file_type),
                    storage_bucket=storage.bucket,
                    uploaded_at=await app.now(tx),
                )
                await rows.begin(tx, row.id, facts)
            if after == "begin":
                return
            await self._stubbornly(lambda: storage.put(facts.storage_key, content, facts.mime_type))
        if after == "store":
            async with app.transaction() as tx:
                await rows.store(tx, row.id, facts)

    async def _stubbornly(self, put: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                return await put()
            except StorageUnavailable:
                await asyncio.sleep(0.5)

    # -- what is made up ----------------------------------------------------------------------------------------------

    def _user(self) -> str:
        return f"user-{self._random.randrange(10**9)}"

    def _picture(self) -> bytes:
        image = Image.new("RGB", SMALLEST, tuple(self._random.randbytes(3)))
        file = BytesIO()
        image.save(file, "JPEG", comment=self._random.randbytes(16).hex())  # so no two are the same
        return file.getvalue()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
