"""Objects that nobody needs go; everything that may be needed stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest

from apps.wallpapers.ids import new_id
from apps.wallpapers.orphans import ORPHANED_OBJECTS, Batch, Counted, TooManyOrphans
from apps.wallpapers.storage import StorageUnavailable
from tests.apps.wallpapers.studio import COMPLETE, Studio

pytestmark = pytest.mark.asyncio


@pytest.fixture
def variables() -> dict[str, str]:
    return {"WALLPAPERS_ORPHAN_MAX_FRACTION": "1"}


async def scan(studio: Studio) -> str:
    """One scan, to its end; how it ended."""
    return (await studio.app.reconcilers.run(ORPHANED_OBJECTS)).ending


async def batches(studio: Studio) -> list[Batch]:
    return [batch async for batch in studio.service.orphans.batches()]


async def of(studio: Studio, state: str, name: str = "original.jpg") -> str:
    """An object whose row is in this state."""
    facts = COMPLETE if state in ("processing", "completed") else {}
    return await studio.put(f"{await studio.row(state, **{**facts, 'content_hash': new_id()})}/{name}")


async def test_objects_without_a_row_or_with_a_failed_one_are_deleted_and_others_stay(
    open_studio: Callable[..., Awaitable[Studio]], variables: dict[str, str]
) -> None:
    studio = await open_studio(**variables)
    states = ("initiated", "uploading", "stored", "processing", "completed")
    kept = [await of(studio, state) for state in states]
    kept += [await of(studio, "stored", "thumb.webp"), await studio.put("other/thing"), await studio.put("wlpr")]
    await of(studio, "failed")
    await studio.put(f"{new_id()}/original.jpg")
    await studio.put("wlpr_no id at all 🌄.txt")
    studio.clock.advance(hours=24, minutes=5)
    assert await scan(studio) == "completed"
    assert sorted(await studio.objects()) == sorted(kept)


async def test_a_young_object_is_left_alone(
    open_studio: Callable[..., Awaitable[Studio]], variables: dict[str, str]
) -> None:
    studio = await open_studio(**variables)
    key = await studio.put(f"{new_id()}/original.jpg")
    studio.clock.advance(hours=23, minutes=55)
    await scan(studio)
    assert await studio.objects() == [key]
    studio.clock.advance(minutes=10)
    await scan(studio)
    assert await studio.objects() == []


async def test_more_than_the_fraction_is_refused_and_nothing_is_deleted(
    open_studio: Callable[..., Awaitable[Studio]],
) -> None:
    """One in five is allowed unless configured otherwise: a wrong database looks as if everything were orphaned."""
    studio = await open_studio(WALLPAPERS_ORPHAN_FEW="0")
    for _ in range(4):
        await of(studio, "stored")
    first = await studio.put(f"{new_id()}/original.jpg")
    second = await studio.put(f"{new_id()}/original.jpg")
    studio.clock.advance(days=2)
    assert await scan(studio) == "failed"
    assert len(await studio.objects()) == 6
    await of(studio, "stored")
    await studio.do("insert into wallpapers (id, user_id) values (%s, 'ada')", [second.partition("/")[0]])
    assert await scan(studio) == "completed"
    assert first not in await studio.objects()
    assert len(await studio.objects()) == 6


@pytest.mark.parametrize(
    ("objects", "orphans", "fraction", "few", "refused"),
    [
        (0, 0, 0.2, 0, False),
        (10, 2, 0.2, 0, False),
        (10, 3, 0.2, 0, True),
        (1, 1, 0.999, 0, True),
        (1, 1, 1.0, 0, False),
        (10, 5, 0.2, 5, False),  # a small bucket can be cleaned
        (10, 6, 0.2, 5, True),
        (5, 5, 0.2, 5, True),  # but nothing is left of it: that is another database
        (1000, 201, 0.2, 5, True),
    ],
)
async def test_the_fraction_is_the_most_that_is_deleted(
    objects: int, orphans: int, fraction: float, few: int, refused: bool
) -> None:
    with pytest.raises(TooManyOrphans, match=f"{orphans} of {objects}") if refused else nullcontext():
        Counted(objects, orphans).check(fraction, few)


async def test_what_changes_between_the_list_and_the_deletion_survives(
    open_studio: Callable[..., Awaitable[Studio]], variables: dict[str, str]
) -> None:
    studio = await open_studio(**variables)
    rewritten, adopted, young, gone, orphan = [f"{new_id()}/original.jpg" for _ in range(5)]
    for key in (rewritten, adopted, gone, orphan):
        await studio.put(key)
    studio.clock.advance(days=2)
    (batch,) = await batches(studio)
    assert len(batch.objects) == 4

    await studio.put(rewritten, b"something else")
    await studio.put(young)
    await studio.do("insert into wallpapers (id, user_id) values (%s, 'ada')", [adopted.partition("/")[0]])
    await studio.storage.remove([each for each in batch.objects if each.key == gone])
    assert await studio.service.orphans.remove(batch) == [orphan]
    assert sorted(await studio.objects()) == sorted([rewritten, adopted, young])


async def test_the_storage_itself_refuses_to_delete_what_is_not_what_was_listed(studio: Studio) -> None:
    """The moment between our last look and the deletion is closed by the storage."""
    key = await studio.put(f"{new_id()}/original.jpg")
    (listed,) = await studio.storage.find(key)
    await studio.put(key, b"something else")
    assert await studio.storage.remove([listed]) == []
    assert await studio.objects() == [key]


async def test_storage_that_is_down_deletes_nothing_and_is_told_of(
    open_studio: Callable[..., Awaitable[Studio]], variables: dict[str, str]
) -> None:
    studio = await open_studio(**variables)
    key = await studio.put(f"{new_id()}/original.jpg")
    studio.clock.advance(days=2)
    (batch,) = await batches(studio)
    with studio.seaweed.stopped():
        assert await scan(studio) == "failed"
        with pytest.raises(StorageUnavailable):
            await studio.service.orphans.remove(batch)
    assert await studio.objects() == [key]


async def test_more_than_a_page_of_objects_is_gone_through(
    open_studio: Callable[..., Awaitable[Studio]], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.wallpapers.storage.PAGE", 10)  # the server ends a page where it is asked to
    studio = await open_studio(**variables)
    for number in range(25):
        await studio.put(f"wlpr_{number:026}/original.jpg")
    kept = f"wlpr_{23:026}"
    await studio.row("stored", id=kept)
    studio.clock.advance(days=2)
    assert [len(batch.objects) for batch in await batches(studio)] == [10, 10, 4]
    assert await scan(studio) == "completed"
    assert await studio.objects() == [f"{kept}/original.jpg"]
