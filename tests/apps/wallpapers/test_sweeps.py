"""What the sweeps make of rows, with a real bucket and a real stream."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.wallpapers.sweeps import MISSING_EVENTS, ORPHANED_INTENTS, STUCK_UPLOADS
from tests.apps.wallpapers.pictures import VIDEO, picture
from tests.apps.wallpapers.stream import STREAM, connected, drop
from tests.apps.wallpapers.studio import COMPLETE, Studio

pytestmark = pytest.mark.asyncio

TEN = timedelta(minutes=10)
A_MOMENT = timedelta(seconds=1)


async def uploaded(studio: Studio, content: bytes, extension: str = "jpg", **columns: Any) -> str:
    """A row that got stuck after its object was written."""
    wallpaper_id = await studio.row("uploading", **columns)
    await studio.put(f"{wallpaper_id}/original.{extension}", content)
    return wallpaper_id


# -- stuck uploads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("file_type", "format"), [("jpg", "JPEG"), ("png", "PNG"), ("webp", "WEBP")])
async def test_a_stuck_upload_whose_object_is_there_is_stored_with_what_the_object_says(
    studio: Studio, file_type: str, format: str
) -> None:
    content = picture(1, format, (1920, 1080))
    wallpaper_id = await uploaded(studio, content, file_type)
    await studio.sweep(STUCK_UPLOADS)
    row = await studio.get(wallpaper_id)
    assert (row["upload_state"], row["state_changed_at"]) == ("stored", studio.clock.now())
    assert row["content_hash"] == hashlib.sha256(content).hexdigest()
    assert (row["file_type"], row["mime_type"]) == (file_type, f"image/{format.lower()}")
    assert (row["file_size_bytes"], row["width"], row["height"]) == (len(content), 1920, 1080)
    assert (row["storage_key"], row["storage_bucket"]) == (f"{wallpaper_id}/original.{file_type}", "wallpapers")
    assert row["uploaded_at"] is not None


@pytest.mark.parametrize(("ago", "looked_at"), [(TEN, 0), (TEN + A_MOMENT, 1)])
async def test_an_upload_is_stuck_after_strictly_more_than_ten_minutes(
    studio: Studio, ago: timedelta, looked_at: int
) -> None:
    await studio.row("uploading", ago=ago)
    assert (await studio.sweep(STUCK_UPLOADS)).claimed == looked_at


async def test_an_upload_without_an_object_is_given_three_more_looks_and_then_fails(studio: Studio) -> None:
    wallpaper_id = await studio.row("uploading")
    for attempts in (1, 2, 3):
        await studio.sweep(STUCK_UPLOADS)
        row = await studio.get(wallpaper_id)
        assert (row["upload_state"], row["upload_attempts"]) == ("uploading", attempts)
        assert row["state_changed_at"] == studio.clock.now(), "so it is left alone for another ten minutes"
        assert (await studio.sweep(STUCK_UPLOADS)).claimed == 0
        studio.clock.advance(minutes=10, seconds=1)
    await studio.sweep(STUCK_UPLOADS)
    row = await studio.get(wallpaper_id)
    assert (row["upload_state"], row["upload_attempts"]) == ("failed", 3)
    assert row["processing_error"] == "Max retries exceeded"


BAD: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "empty": (b"", "jpg", {}),
    "text": (b"not an image", "jpg", {}),
    "video": (VIDEO, "mp4", {}),
    "png as jpg": (picture(1, "PNG"), "jpg", {}),
    "cut off": (picture(1)[:5000], "jpg", {}),
    "small": (picture(1, size=(640, 480)), "jpg", {}),
    "hash": (picture(1), "jpg", {"content_hash": "ab" * 32}),
    "size": (picture(1), "jpg", {"file_size_bytes": 1}),
    "type": (picture(1), "jpg", {"file_type": "png"}),
    "width": (picture(1), "jpg", {"width": 1}),
}


async def test_wrong_objects_are_quarantined_and_hold_up_no_other(studio: Studio) -> None:
    bad = {await uploaded(studio, data, kind, **columns): name for name, (data, kind, columns) in BAD.items()}
    good = await uploaded(studio, picture(2), ago=timedelta(hours=1))  # after the bad ones
    counts = await studio.sweep(STUCK_UPLOADS)
    assert (counts.quarantined, counts.changed) == (len(BAD), 1)
    assert (await studio.get(good))["upload_state"] == "stored"
    assert {bad[each] for each in await studio.quarantined()} == BAD.keys()
    assert await studio.states() == {"uploading": len(BAD), "stored": 1}
    assert len(await studio.objects()) == len(BAD) + 1


async def test_with_two_objects_for_one_row_a_person_decides(studio: Studio) -> None:
    wallpaper_id = await uploaded(studio, picture(1))
    await studio.put(f"{wallpaper_id}/original.png", picture(1, "PNG"))
    await studio.sweep(STUCK_UPLOADS)
    assert "several objects" in (await studio.quarantined())[wallpaper_id]


async def test_a_picture_that_the_user_has_already_fails_with_a_link_to_it(studio: Studio) -> None:
    rows = [await uploaded(studio, picture(1), ago=timedelta(hours=3 - number)) for number in range(3)]
    other = await uploaded(studio, picture(1), user_id="grace")
    counts = await studio.sweep(STUCK_UPLOADS)
    assert (counts.changed, counts.retry, counts.quarantined) == (4, 0, 0), "and the index had nothing to refuse"
    found = [await studio.get(each) for each in rows]
    (survivor,) = [each for each in found if each["upload_state"] == "stored"]
    for each in found:
        if each is not survivor:
            assert (each["upload_state"], each["duplicate_of"]) == ("failed", survivor["id"])
            assert each["processing_error"] == f"Duplicate of {survivor['id']}"
    assert (await studio.get(other))["upload_state"] == "stored", "another user's is another picture"


# -- storage that cannot be asked -------------------------------------------------------------------------------------


async def cycles(studio: Studio, count: int = 6) -> None:
    for _ in range(count):
        await studio.sweep(STUCK_UPLOADS)
        studio.clock.advance(minutes=20)


@pytest.mark.parametrize("how_many", [1, 12])
async def test_storage_that_is_down_for_cycles_moves_no_row_and_counts_no_attempt(
    studio: Studio, how_many: int
) -> None:
    rows = [await uploaded(studio, picture(number), upload_attempts=3) for number in range(how_many)]
    with studio.seaweed.stopped():
        await cycles(studio)
        assert await studio.states() == {"uploading": how_many}
        assert {(await studio.get(each))["upload_attempts"] for each in rows} == {3}
        assert await studio.quarantined() == {}
    await cycles(studio)
    assert await studio.states() == {"stored": how_many}


@pytest.mark.parametrize(
    "variables",
    [{"S3_SECRET_ACCESS_KEY": "wrong"}, {"S3_BUCKET": "no-such-bucket"}, {"S3_ENDPOINT_URL": "http://127.0.0.1:1"}],
    ids=["403", "no bucket", "nobody"],
)
async def test_storage_that_refuses_us_is_not_storage_without_objects(
    open_studio: Callable[..., Awaitable[Studio]], variables: dict[str, str]
) -> None:
    studio = await open_studio(**variables)
    wallpaper_id = await studio.row("uploading", upload_attempts=3)
    await cycles(studio)
    row = await studio.get(wallpaper_id)
    assert (row["upload_state"], row["upload_attempts"]) == ("uploading", 3)
    assert await studio.quarantined() == {}


@pytest.mark.slow
async def test_storage_that_does_not_answer_is_not_storage_without_objects(
    open_studio: Callable[..., Awaitable[Studio]],
) -> None:
    studio = await open_studio(S3_TIMEOUT="200ms")
    wallpaper_id = await studio.row("uploading", upload_attempts=3)
    with studio.seaweed.hanging():
        await cycles(studio, 2)
        assert (await studio.get(wallpaper_id))["upload_state"] == "uploading"


# -- missing events ---------------------------------------------------------------------------------------------------


async def test_a_stored_row_is_announced_once_with_all_that_is_known(studio: Studio) -> None:
    wallpaper_id = await studio.row("stored", **COMPLETE, original_filename="näïve 🌄.jpg")
    await studio.sweep(MISSING_EVENTS)
    assert (await studio.get(wallpaper_id))["upload_state"] == "processing"
    assert await studio.publish() == 1
    ((message_id, event),) = await studio.messages()
    assert message_id == f"{wallpaper_id}.uploaded"
    assert event["wallpaper_id"] == wallpaper_id
    assert event["original_filename"] == "näïve 🌄.jpg"
    assert None not in event.values()


async def test_a_row_that_was_recovered_in_this_cycle_is_not_announced_in_it(studio: Studio) -> None:
    wallpaper_id = await uploaded(studio, picture(1))
    for _ in range(2):
        outcomes = await studio.service.reconciliation.run_reconciliation_now()
        assert (await studio.get(wallpaper_id))["upload_state"] == "stored"
    assert outcomes[MISSING_EVENTS] is not None
    assert outcomes[MISSING_EVENTS]["changed"] == 0
    studio.clock.advance(minutes=5, seconds=1)
    await studio.service.reconciliation.run_reconciliation_now()
    assert (await studio.get(wallpaper_id))["upload_state"] == "processing"


async def test_a_stored_row_gets_missing_metadata_from_the_object_before_its_event(studio: Studio) -> None:
    wallpaper_id = await studio.row("stored")
    await studio.put(f"{wallpaper_id}/original.jpg", picture(1))
    await studio.sweep(MISSING_EVENTS)
    await studio.publish()
    ((_, event),) = await studio.messages()
    assert (event["width"], event["height"], event["mime_type"]) == (1280, 720, "image/jpeg")


@pytest.mark.parametrize("content", [None, b"not an image"])
async def test_a_stored_row_without_available_metadata_is_quarantined_without_an_event(
    studio: Studio, content: bytes | None
) -> None:
    wallpaper_id = await studio.row("stored")
    if content is not None:
        await studio.put(f"{wallpaper_id}/original.jpg", content)
    await studio.sweep(MISSING_EVENTS)
    assert list(await studio.quarantined()) == [wallpaper_id]
    assert await studio.publish() == 0
    assert await studio.messages() == []


async def test_while_nats_is_down_the_event_waits_in_the_outbox(studio: Studio) -> None:
    wallpaper_id = await studio.row("stored", **COMPLETE)
    with studio.without_nats():
        await studio.sweep(MISSING_EVENTS)
        assert await studio.publish() == 1
        assert (await studio.get(wallpaper_id))["upload_state"] == "processing"
    studio.clock.advance(minutes=1)
    await studio.publish()
    assert [message_id for message_id, _ in await studio.messages()] == [f"{wallpaper_id}.uploaded"]


async def test_an_event_that_cannot_be_published_for_long_puts_its_row_back_to_stored(studio: Studio) -> None:
    wallpaper_id = await studio.row("stored", **COMPLETE)
    with studio.without_nats():
        await studio.sweep(MISSING_EVENTS)
        for _ in range(10):
            await studio.publish()
            studio.clock.advance(minutes=6)
        row = await studio.get(wallpaper_id)
        assert row["upload_state"] == "stored"
        assert row["processing_error"].startswith("Event not published: ")
    await studio.sweep(MISSING_EVENTS)
    assert await studio.publish() == 1
    row = await studio.get(wallpaper_id)
    assert (row["upload_state"], row["processing_error"]) == ("processing", None)
    assert len(await studio.messages()) == 1


async def test_an_event_that_nats_will_not_have_puts_its_row_back_at_once_and_others_go_on(
    studio: Studio, caplog: pytest.LogCaptureFixture
) -> None:
    refused = await studio.row("stored", **COMPLETE, original_filename="x" * 3000)
    taken = await studio.row("stored", **COMPLETE, user_id="grace")
    async with connected(studio.nats.url) as stream:
        config = (await stream.stream_info(STREAM)).config
        await stream.update_stream(config.evolve(max_msg_size=2000))
        await studio.sweep(MISSING_EVENTS)
        assert await studio.publish() == 2
        row = await studio.get(refused)
        assert row["upload_state"] == "stored"
        assert "message size exceeds maximum" in row["processing_error"]
        assert [message_id for message_id, _ in await studio.messages()] == [f"{taken}.uploaded"]
        assert "Event not published" in [record.message for record in caplog.records]
        await stream.update_stream(config)
    studio.clock.advance(minutes=6)
    await studio.sweep(MISSING_EVENTS)
    assert await studio.publish() == 1
    assert len(await studio.messages()) == 2


async def test_a_stream_that_is_gone_is_made_again(studio: Studio) -> None:
    await studio.row("stored", **COMPLETE)
    await drop(studio.nats.url)
    await studio.sweep(MISSING_EVENTS)
    assert await studio.publish() == 1
    studio.clock.advance(seconds=2)
    assert await studio.publish() == 1
    assert len(await studio.messages()) == 1


# -- orphaned intents -------------------------------------------------------------------------------------------------


async def test_intents_older_than_an_hour_are_deleted_and_others_are_not(studio: Studio) -> None:
    hour = timedelta(hours=1)
    await studio.row("initiated", ago=hour + A_MOMENT)
    young = await studio.row("initiated", ago=hour)
    await studio.row("uploading")
    await studio.sweep(ORPHANED_INTENTS)
    assert await studio.states() == {"initiated": 1, "uploading": 1}
    assert (await studio.get(young))["upload_state"] == "initiated"
