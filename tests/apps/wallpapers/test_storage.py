"""The bucket: what is there, what is not, and what cannot be said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from apps.wallpapers import storage as storage_module
from apps.wallpapers.content import TooLarge, received
from apps.wallpapers.storage import NotThere, Storage, StorageUnavailable
from tests.apps.wallpapers.studio import Studio
from tests.support import ports
from tests.support.proxy import Proxy

pytestmark = pytest.mark.asyncio

MUCH = 1 << 20


async def text(storage: Storage, key: str, most: int = MUCH) -> bytes:
    (stored,) = await storage.find(key)
    async with storage.get(stored, most) as content:
        return content.file.read()


async def test_what_is_put_is_found_and_got(studio: Studio) -> None:
    await studio.put("wlpr_a/original.jpg", b"hello")
    (stored,) = await studio.storage.find("wlpr_a/original.")
    assert (stored.key, stored.size) == ("wlpr_a/original.jpg", 5)
    assert await text(studio.storage, stored.key) == b"hello"
    assert await studio.storage.find("wlpr_b") == []


async def test_what_is_larger_than_allowed_is_not_read_to_its_end(studio: Studio) -> None:
    await studio.put("wlpr_a/original.jpg", bytes(200_000))
    with pytest.raises(TooLarge):
        await text(studio.storage, "wlpr_a", 100_000)


async def test_an_object_that_has_gone_since_it_was_listed_is_not_there(studio: Studio) -> None:
    await studio.put("wlpr_a/original.jpg")
    (stored,) = await studio.storage.find("wlpr_a")
    assert await studio.storage.remove([stored]) == [stored.key]
    assert await studio.storage.remove([]) == []
    with pytest.raises(NotThere):
        async with studio.storage.get(stored, MUCH):
            pass


@pytest.mark.parametrize(
    ("change", "said"),
    [({"bucket": "no-such-bucket"}, "NoSuchBucket"), ({"secret_key": "wrong"}, "SignatureDoesNotMatch")],
    ids=["no bucket", "403"],
)
async def test_nothing_can_be_said_by_whoever_is_refused(studio: Studio, change: dict[str, str], said: str) -> None:
    await studio.put("wlpr_a/original.jpg")
    (stored,) = await studio.storage.find("wlpr_a")
    refused = Storage(replace(studio.service.config.storage, **change))  # type: ignore[arg-type]
    try:
        with pytest.raises(StorageUnavailable, match=said):
            await refused.find("wlpr_a")
        with pytest.raises(StorageUnavailable, match=said):
            async with refused.get(stored, MUCH):
                pass
        with pytest.raises(StorageUnavailable, match=said):
            await refused.remove([stored])
    finally:
        await refused.aclose()
    assert await studio.objects() == ["wlpr_a/original.jpg"]


async def test_a_line_that_is_cut_or_silent_says_nothing_either(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_way = asyncio.Event()

    async def noticed(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            on_its_way.set()
            yield chunk

    monkeypatch.setattr(storage_module, "received", lambda chunks, most: received(noticed(chunks), most))
    await studio.put("wlpr_a/original.jpg", bytes(MUCH))
    (stored,) = await studio.storage.find("wlpr_a")
    port = int(studio.seaweed.url.rpartition(":")[2])
    with Proxy((ports.LOOPBACK, port)) as proxy:
        place = replace(
            studio.service.config.storage,
            endpoint=f"http://{ports.LOOPBACK}:{proxy.port}",
            timeout=timedelta(milliseconds=500),
        )
        storage = Storage(place)
        try:
            assert len(await storage.find("wlpr_a")) == 1
            proxy.throttle(200_000)
            getting = asyncio.create_task(text(storage, stored.key))
            await asyncio.wait_for(on_its_way.wait(), 10)
            proxy.cut()
            with pytest.raises(StorageUnavailable):
                await getting
            with pytest.raises(StorageUnavailable):
                await storage.find("wlpr_a")
            proxy.heal()
            assert len(await storage.find("wlpr_a")) == 1, "and it is used again"
            proxy.black_hole()
            with pytest.raises(StorageUnavailable):
                await storage.find("wlpr_a")
        finally:
            await storage.aclose()


@pytest.mark.slow
async def test_the_server_keeps_what_it_has_over_a_crash(studio: Studio) -> None:
    await studio.put("wlpr_a/original.jpg", b"hello")
    studio.seaweed.restart()
    assert await text(studio.storage, "wlpr_a") == b"hello"
