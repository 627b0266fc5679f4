"""A small receiver of messages for trying things out: it tells a message it has seen by its key, counts, and can be told to fail.

    POST /hook          takes a message; 200, also for one it has already seen
    GET  /counts        how many came, how many different ones, how many twice
    PUT  /mood?status=503&for=5   answer with that status for so many seconds (Retry-After with 429)
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response

from trueup.integrations.webhooks import verify


class Sink:
    """What came, by key. `bodies` of one key must be the same each time."""

    def __init__(self, secret: str | None = None) -> None:
        self.secret = secret
        self.seen: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.order: list[str] = []
        self.changed: set[str] = set()  # keys whose body was not the same each time
        self.refused = 0
        self._bodies: dict[str, bytes] = {}
        self._status, self._until = 200, 0.0

    def fail(self, status: int, seconds: float) -> None:
        self._status, self._until = status, time.monotonic() + seconds

    def take(self, headers: dict[str, str], body: bytes, message: dict[str, Any]) -> int:
        """The status to answer with."""
        if time.monotonic() < self._until:
            self.refused += 1
            return self._status
        if self.secret is not None:
            verify(headers, body, self.secret)
        key = headers.get("idempotency-key", "")
        if not key or key != message.get("idempotencyKey"):
            return 400
        if key not in self.seen:
            self.order.append(key)
            self.messages[key] = str(message.get("message"))
        elif self._bodies[key] != body:
            self.changed.add(key)
        self._bodies.setdefault(key, body)
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


def make_sink(sink: Sink) -> FastAPI:
    api = FastAPI(title="Sink")

    @api.post("/hook")
    async def hook(request: Request) -> Response:
        body = await request.body()
        status = sink.take(dict(request.headers), body, await request.json())
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
