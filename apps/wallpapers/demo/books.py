"""What is in the database, in the bucket and in the stream, and whether they agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import nats
from nats.js.errors import NotFoundError

from apps.wallpapers.events import message_id
from apps.wallpapers.ids import PREFIX
from apps.wallpapers.service import Service

UNSETTLED = ("initiated", "uploading", "stored")


@dataclass(frozen=True)
class Books:
    states: Mapping[str, int]
    announced: frozenset[str]  # message ids that there must be
    keys: frozenset[str]  # objects that there must be
    objects: tuple[str, ...]
    messages: tuple[str, ...]

    @property
    def settled(self) -> bool:
        return not any(self.states.get(state) for state in UNSETTLED)

    def wrong(self, planned: Mapping[str, int]) -> list[str]:
        """What does not agree; nothing when the books balance."""
        doubled = [each for each, count in Counter(self.messages).items() if count > 1]
        found = {
            "rows are not where they belong": self._misplaced(planned),
            "rows without their object": len(self.keys - set(self.objects)),
            "objects without a row that needs them": len(set(self.objects) - self.keys),
            "rows without their message": len(self.announced - set(self.messages)),
            "messages without a row": len(set(self.messages) - self.announced),
            "messages are there twice": len(doubled),
        }
        return [f"{count} {what}" for what, count in found.items() if count]

    def _misplaced(self, planned: Mapping[str, int]) -> int:
        return sum(abs(self.states.get(state, 0) - planned.get(state, 0)) for state in {*self.states, *planned})

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items())) or "none"
        return f"rows: {states} · {len(self.objects)} objects · {len(self.messages)} messages"


async def look(service: Service, nats_url: str) -> Books:
    async with service.app.transaction() as tx:
        cursor = await tx.execute("select id, upload_state, storage_key from wallpapers")
        rows = await cursor.fetchall()
    return Books(
        states=Counter(state for _, state, _ in rows),
        announced=frozenset(message_id(each) for each, state, _ in rows if state in ("processing", "completed")),
        keys=frozenset(key for _, state, key in rows if state in ("processing", "completed")),
        objects=tuple([each.key async for page in service.storage.pages(PREFIX) for each in page]),
        messages=await _messages(nats_url, service.config.stream),
    )


async def _messages(url: str, stream: str) -> tuple[str, ...]:
    client = await nats.connect(
        url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, error_cb=_unsaid
    )
    try:
        jetstream = client.jetstream()
        try:
            state = (await jetstream.stream_info(stream)).state
        except NotFoundError:
            return ()
        sequences = range(state.first_seq, state.last_seq + 1) if state.messages else ()
        found = [await jetstream.get_msg(stream, sequence) for sequence in sequences]
    finally:
        await client.close()
    return tuple((each.headers or {})["Nats-Msg-Id"] for each in found)


async def _unsaid(error: Exception) -> None:
    """It is raised, too."""
