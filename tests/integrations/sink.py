"""A receiver of webhooks that can be told to misbehave: a real server on loopback, answer by answer."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    connection: int
    target: str
    lines: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.lines)


@dataclass(frozen=True)
class Exchange:
    received: Received
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """RST instead of FIN."""
        raw: socket.socket = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()

    async def until_hung_up(self) -> None:
        """Wait until the other side closes, whatever it sends before."""
        await self.reader.read()


def says(status: int, body: bytes = b"", **headers: str) -> Answer:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    async def answer(exchange: Exchange) -> None:
        await exchange.send(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body)

    return answer


def raw(data: bytes) -> Answer:
    """Exactly these bytes, and then the end."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(data)
        exchange.writer.close()

    return answer


class Sink:
    """Gives its answers one after the other; the last one again and again."""

    def __init__(
        self, *answers: Answer, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.answers = list(answers) or [says(200)]
        self.received: list[Received] = []
        self.connections = 0
        self._where = {"host": host, "port": port, "ssl": tls}
        self._under_way: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, **self._where)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hooks"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        self.connections += 1
        number = self.connections
        try:
            while not writer.is_closing() and (head := await _head(reader)):
                start, *lines = head.decode("latin-1").split("\r\n")[:-2]
                headers = tuple(
                    (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)
                )
                body = await reader.readexactly(int(dict(headers)["content-length"]))
                received = Received(number, start.split(" ")[1], headers, body)
                self.received.append(received)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                await answer(Exchange(received, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._under_way.discard(task)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
