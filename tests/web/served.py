"""`python -m tests.web.served PORT`: an application behind the guard, served by uvicorn. It says what it got."""

from __future__ import annotations

import json
import re
import sys

import uvicorn

from trueup.web.guard import Guard, Message, Receive, Rules, Scope, Send

RULES = Rules(hosts=["shop.example"], max_body=10_000, read_within=0.5, streamed=re.compile("PUT /streamed"))
LOCKED = Rules(token="a-token-of-some-length")


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            message: Message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    body = json.dumps({"path": scope["path"], "size": size}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if scope["path"] == "/cached":
        headers.append((b"Cache-Control", b"max-age=60"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


open_guard, locked_guard = Guard(application, RULES), Guard(application, LOCKED)


async def both(scope: Scope, receive: Receive, send: Send) -> None:
    """What is below /locked needs a token."""
    guard = locked_guard if scope.get("path", "").startswith("/locked") else open_guard
    await guard(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(both, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
