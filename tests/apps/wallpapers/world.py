"""The servers and the rows of the application, seen from outside of its processes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg

from apps.servers.nats import NatsServer
from apps.servers.seaweed import Seaweed
from apps.wallpapers.config import Config
from apps.wallpapers.content import received
from apps.wallpapers.ids import new_id
from apps.wallpapers.storage import Storage
from tests.apps.processes import Process
from tests.apps.wallpapers.pictures import picture
from tests.apps.wallpapers.stream import messages_sync
from tests.support.waiting import wait_until

SOON = 60  # seconds; what is waited for takes a few
OLD = timedelta(hours=2)


class World:
    def __init__(self, url: str, seaweed: Seaweed, nats: NatsServer, database: psycopg.Connection[Any]) -> None:
        self.seaweed, self.nats, self.database = seaweed, nats, database
        self.environment = {
            "TRUEUP_DATABASE_URL": url,
            "TRUEUP_RESCUE_EVERY": "300ms",
            "NATS_URL": nats.url,
            **seaweed.environment(),
        }

    def rows(self, state: str, count: int, *, ago: timedelta = OLD, **columns: Any) -> list[str]:
        ids = [new_id() for _ in range(count)]
        for number, wallpaper_id in enumerate(ids):
            values = {"id": wallpaper_id, "user_id": "ada", "upload_state": state, **columns}
            if state not in ("initiated", "uploading"):
                values |= complete(wallpaper_id, number)
            names, places = ", ".join(values), ", ".join(["%s"] * len(values))
            self.database.execute(
                f"insert into wallpapers ({names}, state_changed_at) values ({places}, now() - %s::interval)",
                [*values.values(), ago],
            )
        return ids

    def uploading(self, count: int, **columns: Any) -> list[str]:
        """Rows that got stuck after their objects were written."""
        ids = self.rows("uploading", count, **columns)
        self.put({f"{each}/original.jpg": picture(number) for number, each in enumerate(ids)})
        return ids

    def objects(self) -> list[str]:
        return asyncio.run(self._objects())

    async def _objects(self) -> list[str]:
        storage = Storage(Config.from_environment(self.environment).storage)
        try:
            return [each.key async for page in storage.pages("") for each in page]
        finally:
            await storage.aclose()

    def put(self, objects: dict[str, bytes]) -> None:
        asyncio.run(self._put(objects))

    async def _put(self, objects: dict[str, bytes]) -> None:
        storage = Storage(Config.from_environment(self.environment).storage)
        for key, data in objects.items():

            async def once(data: bytes = data):  # type: ignore[no-untyped-def]
                yield data

            async with received(once(), len(data)) as content:
                await storage.put(key, content, "image/jpeg")
        await storage.aclose()

    def states(self) -> Counter[str]:
        found = self.database.execute("select upload_state, count(*)::int from wallpapers group by 1").fetchall()
        return Counter(dict(found))

    def until(self, *workers: Process, **states: int) -> None:
        """So many rows in these states, and none in others."""

        def so() -> bool:
            for worker in workers:
                assert worker.alive, worker.said
            return self.states() == Counter(states)

        try:
            wait_until(so, f"there are {states}", timeout=SOON)
        except TimeoutError as error:
            error.add_note(f"there are {self.states()}")
            raise

    def messages(self) -> list[str]:
        """The ids of what is in the stream."""
        return [message_id for message_id, _ in messages_sync(self.nats.url)]

    def until_published(self, ids: list[str]) -> None:
        """Exactly one message for each of them, and no other."""
        wait_until(lambda: len(self.messages()) >= len(ids), "all is published", timeout=SOON)
        wait_until(lambda: self.jobs() == 0, "no event is on its way any more", timeout=SOON)
        assert sorted(self.messages()) == sorted(f"{each}.uploaded" for each in ids)

    def jobs(self) -> int:
        row = self.database.execute("select count(*) from trueup.jobs").fetchone()
        assert row is not None
        return int(row[0])

    def bad_lines(self, *workers: Process) -> list[str]:
        """Whatever went wrong on the way, if only for a moment: a constraint that was violated, a row tried again."""
        lines = [line for worker in workers for line in worker.said.splitlines()]
        return [line for line in lines if not line.startswith("{") or is_bad(json.loads(line))]


def is_bad(line: dict[str, Any]) -> bool:
    if line["message"] == "event loop blocked":  # the machine is busy
        return False
    return "violates" in str(line) or line["level"] not in ("debug", "info")


def complete(wallpaper_id: str, number: int) -> dict[str, Any]:
    return {
        "content_hash": f"{number:064}",
        "file_type": "jpg",
        "mime_type": "image/jpeg",
        "file_size_bytes": 1000,
        "width": 1920,
        "height": 1080,
        "storage_key": f"{wallpaper_id}/original.jpg",
        "storage_bucket": "wallpapers",
        "uploaded_at": "2026-01-01T00:00:00Z",
    }
