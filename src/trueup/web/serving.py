"""Serves an application over HTTP as a process: prints where it listens, answers probes, and exits with 0 when asked to stop.

`/healthz` is 200 for as long as the process can answer. `/readyz` is 200 when everything it needs can be reached, and otherwise
503 with what is down. Probes bring neither a token nor the server's own name, so both are answered before the guard is asked,
and say nothing but that. Needs uvicorn.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager

import uvicorn

from trueup.web.guard import Application, Guard, Receive, Rules, Scope, Send

READY_WITHIN = 5.0  # seconds; probes have timeouts, too

Ready = Callable[[], Awaitable[Mapping[str, str]]]
"""What cannot be reached, by name, and why; nothing when all can."""


class ProbeAnswers:
    """`/healthz` and `/readyz`, in front of an application."""

    def __init__(self, application: Application, ready: Ready) -> None:
        self._application = application
        self._ready = ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            if scope["path"] == "/healthz":
                return await _answer(send, 200, {"alive": True})
            if scope["path"] == "/readyz":
                down = await self._down()
                return await _answer(send, 503 if down else 200, {"ready": not down, "down": sorted(down)})
        return await self._application(scope, receive, send)

    async def _down(self) -> Mapping[str, str]:
        try:
            async with asyncio.timeout(READY_WITHIN):
                return await self._ready()
        except Exception as error:
            return {"application": type(error).__name__}


class Server(uvicorn.Server):
    """`while_listening` is entered once requests are answered, and left before they no longer are."""

    def __init__(
        self,
        name: str,
        application: Application,
        ready: Ready,
        rules: Rules,
        host: str,
        port: int,
        *,
        while_listening: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        served = ProbeAnswers(Guard(application, rules), ready)
        super().__init__(uvicorn.Config(served, host=host, port=port, log_config=None, server_header=False))
        self._name = name
        self._while_listening = while_listening
        self._meanwhile = AsyncExitStack()

    async def run_until_stopped(self) -> int:
        """The exit status of the process: 0 when it was asked to stop, 1 when it could not start."""
        try:
            sockets = await _listening(self.config.host, self.config.port, self.config.backlog)
        except OSError as error:
            print(
                f"{self._name}: cannot listen on {self.config.host}:{self.config.port}: {_why(error)}", file=sys.stderr
            )
            return 1
        try:
            await self.serve(sockets)
        except SystemExit:  # the application has not started; uvicorn has logged why
            return 1
        finally:
            for each in sockets:
                each.close()
        return 0 if self.started else 1

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port, *_ = self.servers[0].sockets[0].getsockname()
            shown = f"[{host}]" if ":" in host else host
            print(
                f"{self._name}: listening on http://{shown}:{port} (probes: /healthz, /readyz)",
                file=sys.stderr,
                flush=True,
            )
            if self._while_listening is not None:
                await self._meanwhile.enter_async_context(self._while_listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._meanwhile.aclose()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a process that was asked to stop and did so ends with 0 instead of dying of the signal afterwards."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


async def _listening(host: str, port: int, backlog: int) -> list[socket.socket]:
    """A socket for each address of the host. uvicorn would log that it cannot bind one, and end the process."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    with ExitStack() as failing:
        failing.callback(server.close)
        sockets = [failing.enter_context(each.dup()) for each in server.sockets]
        for each in sockets:
            each.listen(backlog)
        failing.pop_all()
    server.close()
    return sockets


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; give --host an address of this machine"
    # From Python 3.13 on, asyncio tries every address of a host and says without a number that none of them is of this machine.
    number = error.errno or errno.EADDRNOTAVAIL
    advice = {
        errno.EADDRINUSE: "choose another port (--port; 0 picks a free one), or stop what listens there",
        errno.EADDRNOTAVAIL: "give --host an address of this machine",
        errno.EACCES: "choose a port above 1023 (--port)",
    }
    return f"{os.strerror(number)}; {advice.get(number, 'choose another address (--host, --port)')}"


async def _answer(send: Send, status: int, told: object) -> None:
    body = json.dumps(told).encode() + b"\n"
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
