"""The HTTP API: an upload from intent to event, broken off at every step, sent twice, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from apps.wallpapers import intake, rows
from apps.wallpapers.api import make_api
from apps.wallpapers.ids import new_id
from apps.wallpapers.images import MAX_IMAGE_BYTES
from apps.wallpapers.sweeps import MISSING_EVENTS, ORPHANED_INTENTS, STUCK_UPLOADS
from tests.apps.wallpapers.pictures import VIDEO, animated, picture
from tests.apps.wallpapers.studio import Studio

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def api(studio: Studio) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_api(studio.service), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


async def intent(api: httpx.AsyncClient, user_id: str = "ada") -> str:
    made = await api.post("/wallpapers", json={"user_id": user_id, "original_filename": "näïve 🌄.gif"})
    assert made.status_code == 201
    return str(made.json()["id"])


async def upload(api: httpx.AsyncClient, wallpaper_id: str, content: Any) -> httpx.Response:
    return await api.put(f"/wallpapers/{wallpaper_id}/content", content=content)


async def test_an_upload_goes_from_an_intent_to_an_event(api: httpx.AsyncClient, studio: Studio) -> None:
    wallpaper_id = await intent(api)
    assert (await api.get(f"/wallpapers/{wallpaper_id}")).json()["upload_state"] == "initiated"
    content = picture(1, "PNG", (3840, 2160))
    answer = await upload(api, wallpaper_id, content)
    assert answer.status_code == 200
    assert answer.json() == (await api.get(f"/wallpapers/{wallpaper_id}")).json()
    told = answer.json()
    assert told["upload_state"] == "processing"
    assert (told["width"], told["height"], told["mime_type"]) == (3840, 2160, "image/png"), "whatever it was called"
    assert told["content_hash"] == hashlib.sha256(content).hexdigest()
    assert await studio.objects() == [f"{wallpaper_id}/original.png"]
    assert await studio.publish() == 1
    ((message_id, event),) = await studio.messages()
    assert (message_id, event["storage_key"]) == (f"{wallpaper_id}.uploaded", f"{wallpaper_id}/original.png")


async def test_sent_twice_it_is_one_picture_and_one_event(api: httpx.AsyncClient, studio: Studio) -> None:
    wallpaper_id = await intent(api)
    answers = await asyncio.gather(*(upload(api, wallpaper_id, picture(1)) for _ in range(4)))
    assert {answer.status_code for answer in answers} == {200}
    assert (await upload(api, wallpaper_id, picture(1))).json()["upload_state"] == "processing"
    await studio.publish()
    assert len(await studio.messages()) == 1
    other = await upload(api, wallpaper_id, picture(2))
    assert (other.status_code, "another picture" in other.text) == (409, True)


async def test_two_pictures_for_one_intent_at_the_same_time_leave_one(api: httpx.AsyncClient, studio: Studio) -> None:
    wallpaper_id = await intent(api)
    answers = await asyncio.gather(*(upload(api, wallpaper_id, picture(seed)) for seed in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    (winner,) = [seed for seed, answer in enumerate(answers) if answer.status_code == 200]
    (stored,) = await studio.storage.find(wallpaper_id)
    async with studio.storage.get(stored, MAX_IMAGE_BYTES) as content:
        assert content.sha256 == hashlib.sha256(picture(winner)).hexdigest()


async def test_a_picture_that_the_user_has_already_is_refused_with_a_link_to_it(
    api: httpx.AsyncClient, studio: Studio
) -> None:
    ids = [await intent(api) for _ in range(4)]
    answers = await asyncio.gather(*(upload(api, each, picture(1)) for each in ids))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    (survivor,) = [answer.json()["id"] for answer in answers if answer.status_code == 200]
    for wallpaper_id, answer in zip(ids, answers, strict=True):
        if answer.status_code == 409:
            assert answer.json()["duplicate_of"] == survivor
            row = await studio.get(wallpaper_id)
            assert (row["upload_state"], row["duplicate_of"]) == ("failed", survivor)
            assert (await upload(api, wallpaper_id, picture(1))).status_code == 409, "also when it is sent again"
    assert (await upload(api, await intent(api, "grace"), picture(1))).status_code == 200


async def test_what_is_no_wallpaper_is_refused_and_the_intent_waits_for_another(
    api: httpx.AsyncClient, studio: Studio
) -> None:
    wallpaper_id = await intent(api)
    for content, status, said in (
        (b"", 415, "empty"),
        (b"GIF89a" + bytes(100), 415, "not a JPEG, PNG or WebP"),
        (VIDEO, 415, "videos are not accepted"),
        (picture(1)[:4000], 422, "cannot be read"),
        (picture(1, size=(640, 480)), 422, "640×480"),
        (animated("WEBP"), 422, "animated"),
        (picture(1) + bytes(MAX_IMAGE_BYTES), 413, "52,428,800"),
    ):
        answer = await upload(api, wallpaper_id, content)
        assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
        assert (await studio.get(wallpaper_id))["upload_state"] == "initiated"
    assert await studio.objects() == []
    assert (await upload(api, wallpaper_id, picture(1))).status_code == 200


async def test_a_video_is_refused_at_its_first_bytes(api: httpx.AsyncClient) -> None:
    async def video() -> AsyncIterator[bytes]:
        for byte in VIDEO[:64]:
            yield bytes([byte])
        raise AssertionError("nobody should have asked for more")

    answer = await upload(api, await intent(api), video())
    assert answer.status_code == 415


async def test_storage_that_is_down_is_told_and_the_same_picture_may_be_sent_again(
    api: httpx.AsyncClient, studio: Studio
) -> None:
    wallpaper_id = await intent(api)
    with studio.seaweed.stopped():
        answer = await upload(api, wallpaper_id, picture(1))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        assert (await studio.get(wallpaper_id))["upload_state"] == "uploading"
    assert (await upload(api, wallpaper_id, picture(2))).status_code == 409, "only the same"
    assert (await upload(api, wallpaper_id, picture(1))).json()["upload_state"] == "processing"


@pytest.mark.parametrize("broken_off", ["begin", "put", "store", "process"])
async def test_wherever_an_upload_breaks_off_the_sweeps_see_it_through(
    api: httpx.AsyncClient, studio: Studio, monkeypatch: pytest.MonkeyPatch, broken_off: str
) -> None:
    """As if the process had died there: what is before is committed, what is after never happens."""

    async def dies(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    target, name = (studio.storage, "put") if broken_off == "put" else (rows, broken_off)
    with monkeypatch.context() as patched:
        patched.setattr(target, name, dies)
        wallpaper_id = await intent(api)
        assert (await upload(api, wallpaper_id, picture(1))).status_code == 500
    for _ in range(5):
        studio.clock.advance(minutes=61)
        for sweep in (STUCK_UPLOADS, MISSING_EVENTS, ORPHANED_INTENTS):
            await studio.sweep(sweep)
        await studio.publish()
    published = [message_id for message_id, _ in await studio.messages()]
    if broken_off == "begin":
        assert await studio.states() == {}, "nothing had come of it"
    elif broken_off == "put":
        assert await studio.states() == {"failed": 1}, "there never was an object"
    else:
        assert await studio.states() == {"processing": 1}
        assert published == [f"{wallpaper_id}.uploaded"]


async def test_a_sweep_that_is_faster_than_the_upload_itself_does_no_harm(
    api: httpx.AsyncClient, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = rows.store

    async def slowly(*args: Any, **options: Any) -> Any:
        studio.clock.advance(minutes=20)
        await studio.sweep(STUCK_UPLOADS)
        return await store(*args, **options)

    monkeypatch.setattr(intake.rows, "store", slowly)
    wallpaper_id = await intent(api)
    answer = await upload(api, wallpaper_id, picture(1))
    assert (answer.status_code, answer.json()["upload_state"]) == (200, "stored")
    studio.clock.advance(minutes=10)
    await studio.sweep(MISSING_EVENTS)
    await studio.publish()
    assert len(await studio.messages()) == 1


async def test_an_upload_that_goes_on_while_the_sweep_looks_is_not_judged_by_what_it_saw(
    api: httpx.AsyncClient, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep finds nothing; the picture arrives; what the sweep concludes is refused."""
    content_hash = hashlib.sha256(picture(1)).hexdigest()
    wallpaper_id = await studio.row("uploading", upload_attempts=3, content_hash=content_hash)
    find = studio.storage.find

    async def late(*args: Any, **options: Any) -> Any:
        found = await find(*args, **options)
        monkeypatch.undo()
        assert found == []
        assert (await upload(api, wallpaper_id, picture(1))).status_code == 200
        return found

    monkeypatch.setattr(studio.storage, "find", late)
    counts = await studio.sweep(STUCK_UPLOADS)
    assert (counts.claimed, counts.conflict) == (1, 1)
    assert (await studio.get(wallpaper_id))["upload_state"] == "processing"


async def test_what_is_no_id_is_refused(api: httpx.AsyncClient) -> None:
    for bad in ("1", "wlpr_", "wlpr_' or 1=1", "%00", "wlpr_" + "0" * 25 + "%0A", "..%2F..%2Fetc", "9" * 500):
        assert (await api.get(f"/wallpapers/{bad}")).status_code in (404, 422), bad
        assert (await upload(api, bad, picture(1))).status_code in (404, 422), bad


async def test_an_id_of_nobody_is_not_found(api: httpx.AsyncClient) -> None:
    assert (await api.get(f"/wallpapers/{new_id()}")).status_code == 404
    assert (await upload(api, new_id(), picture(1))).status_code == 404


async def test_an_intent_must_say_whose_it_is_and_nothing_odd(api: httpx.AsyncClient) -> None:
    for body in (
        {},
        {"user_id": ""},
        {"user_id": " "},
        {"user_id": "a\x00b"},
        {"user_id": "x" * 201},
        {"user_id": 1},
        {"user_id": "ada", "original_filename": "a\nb"},
        {"user_id": "ada", "upload_state": "completed"},
    ):
        assert (await api.post("/wallpapers", json=body)).status_code == 422, body
    assert (await api.post("/wallpapers", content=b'{"user_id": "\\ud800"}')).status_code == 422


async def test_what_is_stuck_in_processing_is_reported(studio: Studio, api: httpx.AsyncClient) -> None:
    await upload(api, await intent(api), picture(1))
    assert await studio.service.watch.look() == 0
    studio.clock.advance(hours=1, seconds=1)
    assert await studio.service.watch.look() == 1
    assert timedelta(hours=1) < (await _stuck(studio))[1]


async def _stuck(studio: Studio) -> tuple[int, timedelta]:
    async with studio.app.transaction() as tx:
        return await rows.stuck_in_processing(tx, timedelta(hours=1), now=studio.clock.now())


async def test_the_page_names_what_can_be_asked_for(api: httpx.AsyncClient) -> None:
    page = (await api.get("/docs")).text
    assert "/wallpapers/{wallpaper_id}/content" in page
    assert "<script" not in page


async def test_a_users_wallpapers_are_listed_the_latest_first_and_page_by_page(
    api: httpx.AsyncClient, studio: Studio
) -> None:
    ids = [await studio.row("initiated", id=f"wlpr_{number:026}") for number in range(5)]
    await studio.row("failed", id=f"wlpr_{7:026}")
    await studio.row("initiated", user_id="grace")

    async def listed(**query: Any) -> list[str]:
        answer = await api.get("/wallpapers", params={"user_id": "ada", **query})
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()]

    assert await listed(state="initiated") == ids[::-1]
    assert len(await listed()) == 6
    page = await listed(state="initiated", most=2)
    assert page == [ids[4], ids[3]]
    assert await listed(state="initiated", most=2, before=page[-1]) == [ids[2], ids[1]]
    for query in ({}, {"user_id": "ada", "state": "x"}, {"user_id": "ada", "most": 0}, {"user_id": "a\x00"}):
        assert (await api.get("/wallpapers", params=query)).status_code == 422


async def test_a_user_has_as_many_wallpapers_and_intents_as_is_configured(
    open_studio: Callable[..., Awaitable[Studio]],
) -> None:
    studio = await open_studio(WALLPAPERS_MAX_PER_USER="4", WALLPAPERS_MAX_INTENTS_PER_USER="2")
    transport = httpx.ASGITransport(make_api(studio.service))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as api:
        answers = await asyncio.gather(*(api.post("/wallpapers", json={"user_id": "ada"}) for _ in range(6)))
        assert sorted(each.status_code for each in answers) == [201, 201, 409, 409, 409, 409], "also all at once"
        assert (await api.post("/wallpapers", json={"user_id": "grace"})).status_code == 201
        await studio.do("update wallpapers set upload_state = 'uploading'")
        for status in (201, 201, 409):
            answer = await api.post("/wallpapers", json={"user_id": "ada"})
            assert answer.status_code == status, answer.text
        assert "at most 4 wallpapers" in answer.json()["detail"]
        await studio.do("update wallpapers set upload_state = 'failed'")
        assert (await api.post("/wallpapers", json={"user_id": "ada"})).status_code == 201, "failed ones do not count"


async def test_health_names_what_is_down(open_studio: Callable[..., Awaitable[Studio]]) -> None:
    studio = await open_studio(S3_TIMEOUT="1s")
    assert await studio.service.down() == {}
    with studio.seaweed.hanging(), studio.without_nats():
        transport = httpx.ASGITransport(make_api(studio.service))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as api:
            answer = await api.get("/health")
    assert (answer.status_code, set(answer.json()["down"])) == (503, {"nats", "storage"})


async def test_every_row_that_fails_is_told_of_and_counted(
    api: httpx.AsyncClient, studio: Studio, caplog: pytest.LogCaptureFixture
) -> None:
    before = REGISTRY.get_sample_value("wallpapers_failed_total") or 0
    first, second = await intent(api), await intent(api)
    await upload(api, first, picture(1))
    assert (await upload(api, second, picture(1))).status_code == 409
    absent = await studio.row("uploading", upload_attempts=3)
    duplicate = await studio.row("uploading")
    await studio.put(f"{duplicate}/original.jpg", picture(1))
    await studio.sweep(STUCK_UPLOADS)
    told = {record.wallpaper_id: record.reason for record in caplog.records if record.message == "Upload failed"}  # type: ignore[attr-defined]
    assert told.keys() == {second, absent, duplicate}
    assert told[second] == f"Duplicate of {first}"
    assert (REGISTRY.get_sample_value("wallpapers_failed_total") or 0) - before == 3
