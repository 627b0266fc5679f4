"""Wallpapers in the database. Everything here runs in a transaction of the caller's, and every move names the state it leaves.

Where it matters what time it is, `now` may be given; without it the database's clock is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from trueup.web.database import apply_schema

from .ids import new_id

Tx = AsyncConnection[Any]

SCHEMA = (files(__package__) / "schema.sql").read_text("utf-8")
HELD_BY_A_ROW = ("stored", "processing", "completed")  # states in which a content belongs to one row of a user


@dataclass(frozen=True)
class Facts:
    """What is known about a picture that is in the storage; all of it, or it is not `stored`."""

    content_hash: str
    file_type: str
    mime_type: str
    file_size_bytes: int
    width: int
    height: int
    storage_key: str
    storage_bucket: str
    uploaded_at: datetime

    def columns(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Upload:
    """What sweeps and events need of a row; what the picture is may not be known yet."""

    id: str
    user_id: str
    upload_attempts: int
    original_filename: str | None
    content_hash: str | None
    file_type: str | None
    mime_type: str | None
    file_size_bytes: int | None
    width: int | None
    height: int | None
    storage_key: str | None
    storage_bucket: str | None
    uploaded_at: datetime | None

    @property
    def facts(self) -> Facts | None:
        """None unless all are there."""
        known = {field.name: getattr(self, field.name) for field in fields(Facts)}
        return None if None in known.values() else Facts(**known)


@dataclass(frozen=True)
class Wallpaper(Upload):
    upload_state: str
    state_changed_at: datetime
    processing_error: str | None
    duplicate_of: str | None


COLUMNS = ", ".join(field.name for field in fields(Wallpaper))


async def make_tables(tx: Tx) -> None:
    await apply_schema(tx, SCHEMA, marked="wallpapers")


async def create(tx: Tx, user_id: str, filename: str | None, *, now: datetime | None = None) -> Wallpaper:
    """An intent: `initiated`."""
    made = await _one(
        tx,
        "insert into wallpapers (id, user_id, original_filename, state_changed_at)"
        " values (%s, %s, %s, coalesce(%s, now()))",
        [new_id(), user_id, filename, now],
    )
    assert made is not None
    return made


async def of_user(tx: Tx, user_id: str, *, state: str | None, before: str | None, most: int) -> list[Wallpaper]:
    """The latest first, from before this id on."""
    async with tx.cursor(row_factory=class_row(Wallpaper)) as cursor:
        await cursor.execute(
            f"select {COLUMNS} from wallpapers where user_id = %(user)s and (%(before)s::text is null or id < %(before)s)"  # noqa: S608 - our names
            " and (%(state)s::text is null or upload_state = %(state)s) order by id desc limit %(most)s",
            {"user": user_id, "before": before, "state": state, "most": most},
        )
        return await cursor.fetchall()


async def count_of_user(tx: Tx, user_id: str) -> tuple[int, int]:
    """How many wallpapers the user has, failed ones left out, and how many of those are intents; no other process can add one meanwhile."""
    await tx.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"wallpapers of {user_id}"])
    cursor = await tx.execute(
        "select count(*)::int, count(*) filter (where upload_state = 'initiated')::int from wallpapers"
        " where user_id = %s and upload_state <> 'failed'",
        [user_id],
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def get(tx: Tx, wallpaper_id: str) -> Wallpaper | None:
    async with tx.cursor(row_factory=class_row(Wallpaper)) as cursor:
        await cursor.execute(f"select {COLUMNS} from wallpapers where id = %s", [wallpaper_id])  # noqa: S608 - our names
        return await cursor.fetchone()


async def begin(tx: Tx, wallpaper_id: str, facts: Facts, *, now: datetime | None = None) -> Wallpaper | None:
    """initiated -> uploading: from now on this content, and no other, belongs to the row. None when it is not possible any more.

    An upload that broke off may begin again with the same content.
    """
    return await _one(
        tx,
        "update wallpapers set upload_state = 'uploading', state_changed_at = coalesce(%(now)s, clock_timestamp()),"
        " content_hash = %(content_hash)s, file_type = %(file_type)s, mime_type = %(mime_type)s,"
        " file_size_bytes = %(file_size_bytes)s, width = %(width)s, height = %(height)s"
        " where id = %(id)s and (upload_state = 'initiated' or (upload_state = 'uploading' and content_hash = %(content_hash)s))",
        {**facts.columns(), "id": wallpaper_id, "now": now},
    )


async def store(tx: Tx, wallpaper_id: str, facts: Facts, *, now: datetime | None = None) -> Wallpaper | None:
    """uploading -> stored, if the row still waits for this content; or -> failed, when the user has it already."""
    row = await get(tx, wallpaper_id)
    survivor = None if row is None else await survivor_of(tx, row, facts.content_hash)
    if survivor is not None:
        return await _one(
            tx,
            "update wallpapers set upload_state = 'failed', state_changed_at = coalesce(%s, clock_timestamp()),"
            " processing_error = %s, duplicate_of = %s"
            " where id = %s and upload_state = 'uploading' and content_hash = %s",
            [now, duplicate_error(survivor), survivor, wallpaper_id, facts.content_hash],
        )
    return await _one(
        tx,
        "update wallpapers set upload_state = 'stored', state_changed_at = coalesce(%(now)s, clock_timestamp()),"
        " storage_key = %(storage_key)s, storage_bucket = %(storage_bucket)s, uploaded_at = %(uploaded_at)s"
        " where id = %(id)s and upload_state = 'uploading' and content_hash = %(content_hash)s",
        {**facts.columns(), "id": wallpaper_id, "now": now},
    )


async def process(tx: Tx, wallpaper_id: str, *, now: datetime | None = None) -> Wallpaper | None:
    """stored -> processing. Enqueue the event in the same transaction."""
    return await _one(
        tx,
        "update wallpapers set upload_state = 'processing', state_changed_at = coalesce(%s, clock_timestamp()), processing_error = null"
        " where id = %s and upload_state = 'stored'",
        [now, wallpaper_id],
    )


async def put_back(tx: Tx, wallpaper_id: str, error: str, *, now: datetime | None = None) -> Wallpaper | None:
    """processing -> stored: its event could not be published. None when it is not `processing` any more."""
    return await _one(
        tx,
        "update wallpapers set upload_state = 'stored', state_changed_at = coalesce(%s, clock_timestamp()), processing_error = %s"
        " where id = %s and upload_state = 'processing'",
        [now, error, wallpaper_id],
    )


async def survivor_of(tx: Tx, upload: Upload, content_hash: str) -> str | None:
    """The row in which this user has this content already, if there is one.

    Until the end of the transaction no other process can see that there is none: two uploads of the same picture that end at
    the same time ask one after the other, and the unique index has nothing to refuse.
    """
    await tx.execute(
        "select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"wallpapers {content_hash} {upload.user_id}"]
    )
    cursor = await tx.execute(
        "select id from wallpapers where user_id = %s and content_hash = %s and upload_state = any(%s) and id <> %s",
        [upload.user_id, content_hash, list(HELD_BY_A_ROW), upload.id],
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


def duplicate_error(survivor: str) -> str:
    return f"Duplicate of {survivor}"


async def wanted(tx: Tx, ids: Iterable[str]) -> set[str]:
    """Those of the ids whose objects are to be kept: there is a row, and it has not failed."""
    cursor = await tx.execute("select id from wallpapers where id = any(%s) and upload_state <> 'failed'", [list(ids)])
    return {row[0] for row in await cursor.fetchall()}


async def stuck_in_processing(tx: Tx, since: timedelta, *, now: datetime | None = None) -> tuple[int, timedelta]:
    """How many have been `processing` for longer than this, and for how long the first of them."""
    cursor = await tx.execute(
        "select count(*)::int, coalesce(max(coalesce(%(now)s, now()) - state_changed_at), '0'::interval) from wallpapers"
        " where upload_state = 'processing' and state_changed_at < coalesce(%(now)s, now()) - %(since)s::interval",
        {"now": now, "since": since},
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


async def _one(tx: Tx, statement: str, params: Any) -> Wallpaper | None:
    """The row that a statement has written; None when there was none for it."""
    async with tx.cursor(row_factory=class_row(Wallpaper)) as cursor:
        await cursor.execute(f"{statement} returning {COLUMNS}", params)
        return await cursor.fetchone()
