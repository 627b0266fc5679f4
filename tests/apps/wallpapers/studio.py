"""The application over a clock that tests move, a real bucket and a real stream."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from psycopg import sql
from psycopg.rows import dict_row

from apps.servers.nats import NatsServer
from apps.servers.seaweed import Seaweed
from apps.wallpapers.config import Config
from apps.wallpapers.content import received
from apps.wallpapers.decoding import Decoder
from apps.wallpapers.ids import new_id
from apps.wallpapers.service import Service, build
from apps.wallpapers.storage import Storage
from tests.apps.wallpapers.stream import drop, messages
from trueup import App
from trueup.reconcile.counts import Counts
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

COMPLETE = {
    "content_hash": "ab" * 32,
    "file_type": "jpg",
    "mime_type": "image/jpeg",
    "file_size_bytes": 1000,
    "width": 1920,
    "height": 1080,
    "storage_key": "somewhere/original.jpg",
    "storage_bucket": "wallpapers",
    "uploaded_at": "2026-01-01T00:00:00Z",
}

DECODERS: list[Decoder] = []  # kept from one test to the next: one takes as long to start as a test


class Studio:
    def __init__(self, app: App, clock: ManualClock, seaweed: Seaweed, nats: NatsServer, **variables: str) -> None:
        environment = {**seaweed.environment(), "NATS_URL": nats.url, **variables}
        self.app, self.clock, self.seaweed, self.nats = app, clock, seaweed, nats
        self.service: Service = build(Config.from_environment(environment), app)
        self.service.intake._gallery._idle = DECODERS
        self.storage: Storage = self.service.storage
        self.worker = ManualWorker(app)

    async def begin(self) -> None:
        await self.service.prepare()
        await self.worker.begin()

    async def end(self) -> None:
        await self.worker.end()
        await self.service.close()

    async def sweep(self, name: str) -> Counts:
        return await self.worker.sweep(name)

    async def publish(self) -> int:
        return await self.worker.run_pending()

    async def messages(self) -> list[tuple[str, dict[str, Any]]]:
        return await messages(self.nats.url)

    @contextmanager
    def without_nats(self) -> Iterator[None]:
        """Killed, until the block is left."""
        self.nats.kill()
        try:
            yield
        finally:
            self.nats.start()

    # -- objects ------------------------------------------------------------------------------------------------------

    async def put(self, key: str, content: bytes = b"x") -> str:
        async with received(_once(content), len(content)) as made:
            await self.storage.put(key, made, "application/octet-stream")
        return key

    async def objects(self) -> list[str]:
        return [each.key async for page in self.storage.pages("") for each in page]

    # -- rows ---------------------------------------------------------------------------------------------------------

    async def row(self, state: str, *, ago: timedelta | None = None, user_id: str = "ada", **columns: Any) -> str:
        """A row in this state, since so long."""
        values = {
            "id": new_id(),
            "user_id": user_id,
            "upload_state": state,
            "state_changed_at": self.clock.now() - (ago or timedelta(hours=2)),
            **columns,
        }
        await self.do(
            sql.SQL("insert into wallpapers ({}) values ({})").format(
                sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(sql.Placeholder() * len(values))
            ),
            list(values.values()),
        )
        return str(values["id"])

    async def get(self, wallpaper_id: str) -> dict[str, Any]:
        async with self.app.transaction() as tx, tx.cursor(row_factory=dict_row) as cursor:
            await cursor.execute("select * from wallpapers where id = %s", [wallpaper_id])
            row = await cursor.fetchone()
        assert row is not None
        return row

    async def states(self) -> Counter[str]:
        async with self.app.transaction() as tx:
            cursor = await tx.execute("select upload_state, count(*)::int from wallpapers group by 1")
            return Counter(dict(await cursor.fetchall()))

    async def quarantined(self) -> dict[str, str]:
        """What was set aside, and why."""
        return {each["key"]: json.dumps(each, default=str) for each in await self.app.reconcilers.quarantined()}

    async def do(self, statement: Any, params: Any = None) -> None:
        async with self.app.transaction() as tx:
            await tx.execute(statement, params)


async def emptied(seaweed: Seaweed, nats: NatsServer) -> None:
    """As if nothing had been there."""
    storage = Storage(Config.from_environment({**seaweed.environment(), "NATS_URL": nats.url}).storage)
    async for page in storage.pages(""):
        await storage.remove(page)
    await storage.aclose()
    await drop(nats.url)


async def _once(content: bytes):  # type: ignore[no-untyped-def]
    yield content
