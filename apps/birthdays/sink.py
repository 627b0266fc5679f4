"""A small receiver of messages for trying things out: it tells a message it has seen by its key, counts, and can be told to fail.

POST /hook          takes a message; 200, also for one it has already seen
GET  /counts        how many came, how many different ones, how many twice
GET  /messages      the different ones, in the order in which they came first
PUT  /mood?status=503&for=5   answer with that status for this many seconds (Retry-After with 429)
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response

from trueup.integrations.webhooks import verify


class Sink:
    """What came, by key. The body of one key must be the same each time.

    With a `journal` what is taken is written there before it is answered, and read back at the start: a sink that was killed
    knows what it had taken. A message with one of the words in `unwanted` is refused for good.
    """

    def __init__(
        self, secret: str | None = None, *, journal: Path | None = None, unwanted: Collection[str] = ()
    ) -> None:
        self.secret = secret
        self.seen: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.order: list[str] = []
        self.changed: set[str] = set()  # keys whose body was not the same each time
        self.refused = 0
        self._unwanted = tuple(unwanted)
        self._digests: dict[str, str] = {}
        self._status, self._until = 200, 0.0
        self._journal: int | None = None
        if journal is not None:
            for line in journal.read_text("utf-8").splitlines() if journal.exists() else ():
                self._note(json.loads(line))
            self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def fail(self, status: int, seconds: float) -> None:
        self._status, self._until = status, time.monotonic() + seconds

    def take(self, headers: dict[str, str], body: bytes, message: dict[str, Any]) -> int:
        """The status to answer with."""
        if time.monotonic() < self._until:
            self.refused += 1
            return self._status
        if self.secret is not None:
            verify(headers, body, self.secret)
        key, text = headers.get("idempotency-key", ""), str(message.get("message"))
        if not key or key != message.get("idempotencyKey"):
            return 400
        entry = {"key": key, "at": time.time(), "digest": sha256(body).hexdigest(), "message": text}
        if any(words in text for words in self._unwanted):
            entry["unwanted"] = True
        if self._journal is not None:
            os.write(self._journal, json.dumps(entry).encode() + b"\n")
        return self._note(entry)

    def _note(self, entry: dict[str, Any]) -> int:
        if entry.get("unwanted"):
            self.refused += 1
            return 422
        key = entry["key"]
        if key not in self.seen:
            self.order.append(key)
            self.messages[key] = entry["message"]
        elif self._digests[key] != entry["digest"]:
            self.changed.add(key)
        self._digests.setdefault(key, entry["digest"])
        self.seen[key] += 1
        return 200

    def counts(self) -> dict[str, int]:
        return {
            "received": self.seen.total(),
            "delivered": len(self.seen),
            "again": self.seen.total() - len(self.seen),
            "changed": len(self.changed),
            "refused": self.refused,
        }


def make_sink(sink: Sink, *, answer_after: float = 0.0) -> FastAPI:
    """Answers come `answer_after` seconds after a message was taken: a sender that dies meanwhile has sent it and does not know."""
    api = FastAPI(title="Sink")

    @api.post("/hook")
    async def hook(request: Request) -> Response:
        body = await request.body()
        status = sink.take(dict(request.headers), body, await request.json())
        await asyncio.sleep(answer_after)
        return Response(status_code=status, headers={"Retry-After": "2"} if status == 429 else {})

    @api.get("/counts")
    async def counts() -> dict[str, int]:
        return sink.counts()

    @api.get("/messages")
    async def messages(most: Annotated[int, Query(ge=1, le=100_000)] = 100) -> list[dict[str, Any]]:
        return [{"key": key, "message": sink.messages[key], "times": sink.seen[key]} for key in sink.order[:most]]

    @api.put("/mood")
    async def mood(
        status: Annotated[int, Query(ge=200, le=599)], for_: Annotated[float, Query(alias="for", ge=0, le=86_400)]
    ) -> dict[Literal["status"], int]:
        sink.fail(status, for_)
        return {"status": status}

    return api
