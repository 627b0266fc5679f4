"""An independent check of the application's books: plain SQL, and the bucket and the stream as any client sees them.

It shares no code with the application. What there must be is told by the rows; whether it is there is told by S3 and by NATS.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import nats
import psycopg
from botocore.config import Config
from botocore.session import get_session
from psycopg import Connection

from apps.checking import counted, told

ROWS = """
select id, upload_state, content_hash, storage_key, file_size_bytes from wallpapers where upload_state in ('processing', 'completed')
"""
# Each counts what is wrong.
WRONG = {
    "rows are stuck": "select count(*) from wallpapers where upload_state in ('initiated', 'uploading', 'stored')",
    "pictures are there twice": """
select count(*) from (select from wallpapers where upload_state in ('stored', 'processing', 'completed')
 group by user_id, content_hash having count(*) > 1) as d""",
    "failed rows are called the second of a picture that is there once": """
select count(*) from wallpapers as w where upload_state = 'failed' and duplicate_of is not null and not exists (
  select from wallpapers as s where s.id = w.duplicate_of and s.user_id = w.user_id and s.upload_state in ('processing', 'completed'))""",
    "failed rows do not say why": """
select count(*) from wallpapers where upload_state = 'failed' and coalesce(processing_error, '') = ''""",
}

Objects = dict[str, tuple[int, str]]  # by key: size and hash, from the bytes
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Checked:
    """`wrong` is empty when nothing is lost, doubled or stuck."""

    uploaded: int
    objects: int
    messages: int
    wrong: list[str]


def check(
    database: str, s3: dict[str, str], bucket: str, nats_url: str, stream: str, taken: Collection[str] = ()
) -> Checked:
    """`taken` are the rows whose upload clients were told has arrived: those must be there, whatever rows and bucket agree on."""
    with psycopg.connect(database) as connection:
        return examine(connection, objects(s3, bucket), asyncio.run(messages(nats_url, stream)), taken)


def examine(connection: Connection[Any], objects: Objects, messages: Messages, taken: Collection[str] = ()) -> Checked:
    rows = connection.execute(ROWS).fetchall()
    expected = {key: (size, digest) for _, _, digest, key, size in rows}
    announced = Counter(message["wallpaper_id"] for message in messages)
    hashes = {message["wallpaper_id"]: message["content_hash"] for message in messages}
    found = counted(connection, WRONG) | {
        "rows have no object with their bytes": sum(objects.get(key) != is_so for key, is_so in expected.items()),
        "objects belong to no row": len(objects.keys() - expected.keys()),
        "rows were never announced": len({row[0] for row in rows} - announced.keys()),
        "events are about no row": len(announced.keys() - {row[0] for row in rows}),
        "events were published twice": sum(count > 1 for count in announced.values()),
        "uploads that were taken are lost": len(set(taken) - {row[0] for row in rows}),
        "events are about another picture": sum(hashes.get(row[0], row[2]) != row[2] for row in rows),
    }
    return Checked(len(rows), len(objects), len(messages), told(found))


def objects(s3: dict[str, str], bucket: str) -> Objects:
    """All that are in the bucket."""
    client: Any = get_session().create_client(
        "s3",
        endpoint_url=s3["S3_ENDPOINT_URL"],
        aws_access_key_id=s3["S3_ACCESS_KEY_ID"],
        aws_secret_access_key=s3["S3_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )
    try:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        bodies = ((key, client.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys)
        return {key: (len(body), hashlib.sha256(body).hexdigest()) for key, body in bodies}
    finally:
        client.close()


async def messages(url: str, stream: str) -> Messages:
    """All that are in the stream."""
    client = await nats.connect(url)
    try:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        sequences = range(state.first_seq, state.last_seq + 1) if state.messages else ()
        return [json.loads((await jetstream.get_msg(stream, number)).data or b"{}") for number in sequences]
    finally:
        await client.close()
