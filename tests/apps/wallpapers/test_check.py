"""The independent check: it finds nothing in books that balance, and each thing that can be wrong with others."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from apps.wallpapers.check import check, examine, messages, objects
from apps.wallpapers.sweeps import MISSING_EVENTS, STUCK_UPLOADS
from tests.apps.wallpapers.pictures import picture
from tests.apps.wallpapers.stream import STREAM, connected
from tests.apps.wallpapers.studio import Studio

pytestmark = pytest.mark.asyncio

FIRST = "(select min(id) from wallpapers)"

# What is planted in the rows, and what must be said of it.
PLANTED = {
    f"update wallpapers set upload_state = 'stored' where id = {FIRST}": [
        "1 rows are stuck",
        "1 objects belong to no row",
        "1 events are about no row",
    ],
    f"update wallpapers set upload_state = 'failed' where id = {FIRST}": [
        "1 failed rows do not say why",
        "1 objects belong to no row",
        "1 events are about no row",
    ],
    f"delete from wallpapers where id = {FIRST}": ["1 objects belong to no row", "1 events are about no row"],
    f"update wallpapers set file_size_bytes = 1 where id = {FIRST}": ["1 rows have no object with their bytes"],
    f"update wallpapers set content_hash = repeat('ab', 32) where id = {FIRST}": [
        "1 rows have no object with their bytes",
        "1 events are about another picture",
    ],
    "drop index wallpapers_content; update wallpapers set content_hash = (select max(content_hash) from wallpapers)": [
        "1 pictures are there twice",
        "1 rows have no object with their bytes",
        "1 events are about another picture",
    ],
}


async def test_the_check_agrees_with_books_that_balance_and_sees_each_thing_that_is_wrong(
    studio: Studio, database_url: str
) -> None:
    for number in range(2):
        content = picture(number)
        made = await studio.row("uploading", content_hash=sha256(content).hexdigest())
        await studio.put(f"{made}/original.jpg", content)
    await studio.sweep(STUCK_UPLOADS)
    studio.clock.advance(minutes=10)
    await studio.sweep(MISSING_EVENTS)
    await studio.publish()
    assert await studio.states() == {"processing": 2}
    s3, where = studio.seaweed.environment(), (studio.nats.url, STREAM)
    checked = await asyncio.to_thread(check, database_url, s3, "wallpapers", *where)
    assert (checked.wrong, checked.uploaded, checked.objects, checked.messages) == ([], 2, 2, 2)
    stored, published = await asyncio.to_thread(objects, s3, "wallpapers"), await messages(*where)
    with psycopg.connect(database_url) as connection:
        for statement, wrong in PLANTED.items():
            connection.execute(statement.encode())
            assert sorted(examine(connection, stored, published).wrong) == sorted(wrong), statement
            connection.rollback()
        assert examine(connection, stored, published[1:]).wrong == ["1 rows were never announced"]
        # A picture that is gone on all sides: only those who sent it know that it was ever there.
        connection.execute(
            "update wallpapers set upload_state = 'failed', processing_error = 'Max retries exceeded' where id = %s",
            [published[0]["wallpaper_id"]],
        )
        taken = [each["wallpaper_id"] for each in published]
        left = {key: each for key, each in stored.items() if not key.startswith(taken[0])}
        assert examine(connection, left, published[1:]).wrong == []
        assert examine(connection, left, published[1:], taken).wrong == ["1 uploads that were taken are lost"]
        connection.execute("update wallpapers set duplicate_of = id where upload_state = 'failed'")
        wrong = "1 failed rows are called the second of a picture that is there once"
        assert examine(connection, left, published[1:]).wrong == [wrong]
        connection.rollback()
    # And with the servers' own content: another picture's bytes, an object of no row, and an event once more.
    await studio.put(next(iter(stored)), b"something else")
    await studio.put("wlpr_nobodys/original.jpg")
    await again(studio, published[0])
    checked = await asyncio.to_thread(check, database_url, s3, "wallpapers", *where)
    assert checked.wrong == [
        "1 rows have no object with their bytes",
        "1 objects belong to no row",
        "1 events were published twice",
    ]


async def again(studio: Studio, message: dict[str, Any]) -> None:
    async with connected(studio.nats.url) as stream:
        await stream.publish("wallpapers.uploaded", json.dumps(message).encode())
