"""One connection through the proxy: two sockets, and a line between them that may be slow, silent or broken.

Bytes are taken from one side as fast as the line's rate allows, wait in a queue until they are due, and are then given to
the other side. The end of a stream and a reset travel in the same queue, so a silent line hides those too: to the server, a
client that died behind it looks alive. That is what "half-open" means.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from tests.support.wire import BIND, PARSE, QUERY, Conversation

Address: TypeAlias = Path | tuple[str, int]

MAX_CHUNK = 64 * 1024
THROTTLED_CHUNK_LASTS = 0.05  # seconds; short, so that the bytes of a slow line trickle
IN_FLIGHT = 64  # chunks under way in one direction before the sender is made to wait
RESET = None


@dataclass(frozen=True)
class Condition:
    """How the line behaves; as it stands here, perfectly."""

    silent: bool = False
    delay: float = 0.0
    bytes_per_second: float = math.inf


class OwnConnection:
    """What all connections of a proxy run over. A new condition is felt at once, also by bytes already under way."""

    def __init__(self) -> None:
        self.condition = Condition()
        self._changed = asyncio.Event()

    def change(self, condition: Condition) -> None:
        self.condition = condition
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def chunk(self) -> int:
        """How many bytes to take at once."""
        return int(max(1, min(MAX_CHUNK, self.condition.bytes_per_second * THROTTLED_CHUNK_LASTS)))

    async def transmit(self, size: int) -> None:
        """Return when this many bytes have had the time that they take."""
        started_at = monotonic()
        while (left := started_at + size / self.condition.bytes_per_second - monotonic()) > 0:
            await self._pause(left)

    async def arrive(self, taken_at: float) -> None:
        """Return when bytes that were taken at this moment may come out at the other end."""
        while self.condition.silent or (left := taken_at + self.condition.delay - monotonic()) > 0:
            await self._pause(None if self.condition.silent else left)

    async def _pause(self, seconds: float | None) -> None:
        """Return after this time, or earlier when the condition changes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)


class LostReply:
    """A loss that strikes once: the server does what it was asked, and the client never hears that it did."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self._happened = threading.Event()

    @property
    def happened(self) -> bool:
        """Whether the server has answered, its answer was swallowed, and the connection was reset."""
        return self._happened.is_set()

    def wait(self, timeout: float = 10) -> None:
        """Return once it has happened. Raises TimeoutError when it has not: the test has then tested nothing."""
        if not self._happened.wait(timeout):
            raise TimeoutError(f"no reply to {self.request!r} was lost within {timeout} s")

    def report(self) -> None:
        self._happened.set()


class Connection:
    """Carries the bytes of one client, and the answers to it, over the line."""

    def __init__(self, client: socket.socket, line: OwnConnection, losses: list[LostReply]) -> None:
        self._client = client
        self._line = line
        self._losses = losses
        self._conversation = Conversation()
        self._loss: LostReply | None = None
        self._lost_round = 0

    async def run(self, upstream: Address) -> None:
        """Carry until both sides have ended, and close. Both are reset if one breaks, or when the task is cancelled."""
        server: socket.socket | None = None
        orderly = False
        try:
            await self._line.arrive(monotonic())
            server = await connect(upstream)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry(self._client, server, self._to_server))
                directions.create_task(self._carry(server, self._client, self._to_client))
            orderly = True
        except* OSError:
            pass
        finally:
            for side in filter(None, (self._client, server)):
                close(side, reset=not orderly)
        if self._loss and self._conversation.answered >= self._lost_round:
            self._loss.report()

    async def _carry(self, source: socket.socket, sink: socket.socket, passed: Callable[[bytes], bytes]) -> None:
        queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(IN_FLIGHT)
        async with asyncio.TaskGroup() as ends:
            ends.create_task(self._take(source, queue))
            ends.create_task(self._give(queue, sink, passed))

    async def _take(self, source: socket.socket, queue: asyncio.Queue[tuple[float, bytes | None]]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data: bytes | None
            try:
                data = await loop.sock_recv(source, self._line.chunk)
            except OSError:
                data = RESET
            await self._line.transmit(len(data or b""))
            await queue.put((monotonic(), data))
            if not data:
                return

    async def _give(
        self,
        queue: asyncio.Queue[tuple[float, bytes | None]],
        sink: socket.socket,
        passed: Callable[[bytes], bytes],
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            taken_at, data = await queue.get()
            await self._line.arrive(taken_at)
            if data is RESET:
                raise ConnectionResetError
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(sink, passed(data))

    def _to_server(self, data: bytes) -> bytes:
        for message, answered_in in self._conversation.client_sent(data):
            if self._loss is None and message.kind in (QUERY, PARSE, BIND):
                self._loss = next((loss for loss in self._losses if loss.request in message.body), None)
                if self._loss:
                    self._losses.remove(self._loss)
                    self._lost_round = answered_in
        return data

    def _to_client(self, data: bytes) -> bytes:
        self._conversation.server_sent(data)
        if self._loss is None:
            return data
        if self._conversation.answered >= self._lost_round:
            raise ConnectionResetError
        return b""


async def connect(address: Address) -> socket.socket:
    """A connection to the address. Raises OSError when nobody answers there."""
    server = socket.socket(socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET)
    send_at_once(server)
    server.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(server, str(address) if isinstance(address, Path) else address)
    except BaseException:
        server.close()
        raise
    return server


def send_at_once(side: socket.socket) -> None:
    """Without this, TCP would add delays of its own to small messages."""
    if side.family != socket.AF_UNIX:
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def close(side: socket.socket, *, reset: bool) -> None:
    if reset and side.family != socket.AF_UNIX:
        # Lingering for no time at all: TCP then says "reset" instead of "end", and drops what it has not sent.
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    side.close()
