"""An S3 that lies with 200: what does not prove itself to be S3's answer decides nothing."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
import pytest_asyncio

from apps.servers.seaweed import Seaweed
from apps.wallpapers import rows
from apps.wallpapers.content import received
from apps.wallpapers.demo.liar import (
    LIES,
    OPERATIONS,
    Liar,
    entry,
    left_out,
    listing_of,
    not_there,
    redirect,
    same_page,
)
from apps.wallpapers.orphans import ORPHANED_OBJECTS
from apps.wallpapers.storage import NotThere, Storage, StorageUnavailable
from apps.wallpapers.sweeps import MISSING_EVENTS, STUCK_UPLOADS
from tests.apps.wallpapers.pictures import picture
from tests.apps.wallpapers.studio import Studio
from tests.support.ports import LOOPBACK

pytestmark = pytest.mark.asyncio

KEY = "wlpr_a/original.jpg"


@pytest.fixture
def liar(seaweed: Seaweed) -> Iterator[Liar]:
    with Liar(seaweed.url) as liar:
        yield liar


@pytest_asyncio.fixture
async def lied_to(studio: Studio, liar: Liar) -> AsyncIterator[Storage]:
    storage = Storage(replace(studio.service.config.storage, endpoint=liar.url))
    yield storage
    await storage.aclose()


async def once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_what_does_not_prove_itself_is_no_answer(studio: Studio, lied_to: Storage, liar: Liar) -> None:
    """Every lie in answer to every operation."""
    await studio.put(KEY, b"hello")
    (stored,) = await studio.storage.find(KEY)
    assert await lied_to.find(KEY) == [stored], "it passes on the truth"

    async def get() -> bytes:
        async with lied_to.get(stored, 100) as content:
            return content.file.read()

    async def put() -> None:
        async with received(once(b"another one"), 100) as content:
            await lied_to.put("wlpr_b/original.jpg", content, "image/jpeg")

    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "list": lambda: lied_to.find(KEY),
        "get": get,
        "put": put,
        "delete": lambda: lied_to.remove([stored]),
    }
    believed = set()
    for name, lie in LIES.items():
        for operation in OPERATIONS:
            await studio.put(KEY, b"hello")  # a deletion whose answer came in half was carried out
            with liar.telling(lie, operation):
                try:
                    answer = await calls[operation]()
                except StorageUnavailable:
                    continue
            if operation == "list" and name in ("wrong ETag", "older version"):
                assert [each.key for each in answer] == [KEY], "it is there: only what it is cannot be said"  # type: ignore[attr-defined]
                continue
            believed.add((name, operation))
    assert believed == set()
    assert liar.told == len(LIES) * len(OPERATIONS)
    await studio.put(KEY, b"hello")
    assert await get() == b"hello", "and the truth is believed again"


ODD_OBJECTS = {
    "a time without a zone": entry(modified="2020-01-01T00:00:00"),
    "no day": entry(modified="12:00"),
    "beyond all time": entry(modified="9" * 20),
    "a zone that is none": entry(modified="2020-01-01T00:00:00+99:99"),
    "fewer bytes than none": entry(size="-5"),
    "half a byte": entry(size="5.5"),
    "no ETag": entry(etag=""),
    "the same twice": entry() * 2,
}


async def test_an_object_of_which_anything_is_odd_is_not_listed(lied_to: Storage, liar: Liar) -> None:
    """By its time it would be old enough to be deleted, or end the scan; without an ETag it would be deleted whatever it is."""
    with liar.telling(listing_of(entry())):
        assert [each.key for each in await lied_to.find(KEY)] == [KEY]
    for what, objects in ODD_OBJECTS.items():
        with liar.telling(listing_of(objects, objects.count("<Key>"))), pytest.raises(StorageUnavailable):
            pytest.fail(f"{what}: {await lied_to.find(KEY)}")


async def test_an_etag_is_the_same_with_and_without_its_quotes(studio: Studio) -> None:
    """Some storages list it plainly, and answer a request by name with the quotes that HTTP wants."""
    await studio.put(KEY, b"hello")
    (stored,) = await studio.storage.find(KEY)
    plain = replace(stored, etag=stored.etag.strip('"'))
    assert plain != stored
    async with studio.storage.get(plain, 100) as content:
        assert content.file.read() == b"hello"


ABOUT_SOMETHING_ELSE = {
    "500": not_there(500),
    "403": not_there(403),
    "another key": not_there(also="<Key>wlpr_b/original.jpg</Key>"),
    "another bucket": not_there(also="<BucketName>another-bucket</BucketName>"),
}


async def test_absent_is_only_what_a_404_says_of_this_very_object(studio: Studio, lied_to: Storage, liar: Liar) -> None:
    await studio.put(KEY, b"hello")
    (stored,) = await studio.storage.find(KEY)
    for also in ("", f"<Key>{KEY}</Key><BucketName>wallpapers</BucketName>"):
        with liar.telling(not_there(also=also), "get"):
            await lied_to.check_absent(KEY)
            with pytest.raises(NotThere):
                async with lied_to.get(stored, 100):
                    pass
    for what, lie in ABOUT_SOMETHING_ELSE.items():
        with liar.telling(lie, "get"):
            with pytest.raises(StorageUnavailable):
                pytest.fail(f"{what}: {await lied_to.check_absent(KEY)}")
            with pytest.raises(StorageUnavailable):
                async with lied_to.get(stored, 100):
                    pass


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(studio: Studio, lied_to: Storage, liar: Liar, status: int) -> None:
    """Neither with what was signed for this storage nor with a picture: it may point into our own network."""
    async with received(once(b"a picture"), 100) as content:
        with socket.create_server((LOOPBACK, 0)) as elsewhere:
            elsewhere.setblocking(False)
            with liar.telling(redirect(status, f"http://{LOOPBACK}:{elsewhere.getsockname()[1]}/")):
                for attempt in (lied_to.find(KEY), lied_to.put(KEY, content, "image/jpeg"), lied_to.check_absent(KEY)):
                    with pytest.raises(StorageUnavailable):
                        await attempt
                    with pytest.raises(BlockingIOError):
                        elsewhere.accept()


async def test_a_listing_that_never_gets_further_ends(lied_to: Storage, liar: Liar) -> None:
    with liar.telling(same_page, "list"), pytest.raises(StorageUnavailable, match="it lists 'wlpr_a/original"):
        async for page in lied_to.pages("wlpr_"):
            assert [each.key for each in page] == [KEY]


async def test_what_a_listing_leaves_out_is_asked_for_by_name_before_its_row_fails(
    open_studio: Callable[..., Awaitable[Studio]], liar: Liar
) -> None:
    studio = await open_studio(S3_ENDPOINT_URL=liar.url)
    known, gone = [await studio.row("uploading", upload_attempts=3) for _ in range(2)]
    for each in (known, gone):
        await studio.do("update wallpapers set storage_key = id || '/original.jpg' where id = %s", [each])
    await studio.put(f"{known}/original.jpg", picture(1))
    with liar.telling(left_out, "list"):
        await studio.sweep(STUCK_UPLOADS)
    assert ((await studio.get(known))["upload_state"], (await studio.get(known))["upload_attempts"]) == ("uploading", 3)
    assert (await studio.get(gone))["upload_state"] == "failed", "neither shows it"
    studio.clock.advance(hours=1)
    await studio.sweep(STUCK_UPLOADS)
    assert (await studio.get(known))["upload_state"] == "stored"


async def test_no_row_fails_and_no_picture_is_deleted_and_no_event_is_published_by_a_lie(
    open_studio: Callable[..., Awaitable[Studio]], liar: Liar
) -> None:
    studio = await open_studio(S3_ENDPOINT_URL=liar.url, WALLPAPERS_ORPHAN_MAX_FRACTION="1")
    stuck = [await studio.row("uploading", upload_attempts=3) for _ in range(2)]  # one more look without, and it fails
    for number, each in enumerate(stuck):
        await studio.put(f"{each}/original.jpg", picture(number))
    async with studio.app.transaction() as tx:
        sent = (await rows.create(tx, "grace", None, now=studio.clock.now())).id

    for name, lie in LIES.items():
        told = liar.told
        with liar.telling(lie):
            await studio.sweep(STUCK_UPLOADS)
            await studio.sweep(MISSING_EVENTS)
            await studio.app.reconcilers.run(ORPHANED_OBJECTS)
            with pytest.raises(StorageUnavailable):
                await studio.service.intake.take(sent, once(picture(7)))
            await studio.publish()
        assert liar.told >= told + 3, f"{name}: a sweep, a scan and an upload"
        assert await studio.states() == {"uploading": 3}, name
        studio.clock.advance(days=2)
    assert {(await studio.get(each))["upload_attempts"] for each in stuck} == {3}, "no attempt is counted"
    assert await studio.quarantined() == {}
    assert await studio.messages() == []
    assert set(await studio.objects()) >= {f"{each}/original.jpg" for each in stuck}

    # When the storage can be heard again, all of it comes right: also after the scan that deletes what is not needed.
    await studio.service.intake.take(sent, once(picture(7)))
    for _ in range(3):
        await studio.app.reconcilers.run(ORPHANED_OBJECTS)
        await studio.sweep(STUCK_UPLOADS)
        studio.clock.advance(hours=3)
        await studio.sweep(MISSING_EVENTS)
        await studio.publish()
    assert await studio.states() == {"processing": 3}
    assert {key.partition("/")[0] for key in await studio.objects()} == {*stuck, sent}
    assert sorted(name for name, _ in await studio.messages()) == sorted(f"{each}.uploaded" for each in (*stuck, sent))
