"""A network between client and PostgreSQL that a test can cut, slow down, silence and heal.

It runs on an event loop of its own in a thread of its own, so a test that blocks, or whose loop is blocked, does not hold up
the traffic. Every method may be called from sync and async tests alike: it returns within milliseconds, when the new
condition holds.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from psycopg.conninfo import conninfo_to_dict

from tests.support import ports
from tests.support.line import Address, Condition, Connection, LostReply, OwnConnection, send_at_once
from tests.support.urls import connection_url

COMMAND_TIMEOUT = 10  # a command takes milliseconds; this says that the proxy's thread is gone


class Proxy:
    """Listens on a port of its own on loopback and carries each connection to the upstream server.

    It lives as long as its `with` block, which it enters healthy. Impairments add up until it is healed.
    """

    def __init__(self, upstream: Address) -> None:
        self._upstream = upstream
        self._line = OwnConnection()
        self._losses: list[LostReply] = []
        self._carrying: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    @classmethod
    def before(cls, conninfo: str) -> Self:
        """A proxy for the server that this URL or DSN leads to."""
        return cls(address_of(conninfo))

    def __enter__(self) -> Self:
        self._listener = ports.reserve()
        self.port = ports.number(self._listener)
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_TIMEOUT)
        self._loop.close()
        self._listener.close()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._carrying)

    def url(self, conninfo: str) -> str:
        """The same connection, through the proxy. It is not encrypted: requests are recognised by their text."""
        parameters = conninfo_to_dict(conninfo)
        parameters.pop("hostaddr", None)
        detour = {"host": ports.LOOPBACK, "port": self.port, "sslmode": "disable", "gssencmode": "disable"}
        return connection_url({**parameters, **detour})

    def heal(self) -> None:
        """Make it a perfect network again: new connections, no delay, no armed loss. What a silence held back arrives."""
        self._do(self._heal())

    def cut(self) -> None:
        """Reset every connection, and refuse new ones until healed."""
        self._do(self._cut())

    def reset(self) -> None:
        """Reset every connection, and let new ones in, under the same conditions as before."""
        self._do(self._reset())

    def black_hole(self) -> None:
        """Keep and accept connections, but let nothing through either way, not even that one side is gone."""
        self._do(self._change(replace(self._line.condition, silent=True)))

    def delay(self, seconds: float) -> None:
        """Let everything arrive this much later, in each direction: a round trip takes twice as much longer."""
        self._do(self._change(replace(self._line.condition, delay=seconds)))

    def throttle(self, bytes_per_second: float) -> None:
        """Let no more than this through, per connection and direction."""
        self._do(self._change(replace(self._line.condition, bytes_per_second=bytes_per_second)))

    def drop_next_reply(self, to: bytes = b"") -> LostReply:
        """Arm a loss for the next request whose text or parameters contain these bytes, on whichever connection.

        The request reaches the server. From then on the client of that connection hears nothing, and once the server has
        answered in full, the connection is reset. Other connections, also later ones, are not touched. A statement that was
        prepared under a name is recognised only when it is prepared, not when it is executed.
        """
        loss = LostReply(to)
        self._do(self._arm(loss))
        return loss

    def _do(self, command: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(command, self._loop).result(COMMAND_TIMEOUT)

    async def _change(self, condition: Condition) -> None:
        self._line.change(condition)

    async def _arm(self, loss: LostReply) -> None:
        self._losses.append(loss)

    async def _heal(self) -> None:
        self._losses.clear()
        self._line.change(Condition())
        if self._accepting is None:
            self._listener.listen()
            self._listener.setblocking(False)
            self._accepting = asyncio.create_task(self._accept(self._listener))

    async def _cut(self) -> None:
        if self._accepting:
            await end(self._accepting)
            self._accepting = None
            self._listener.close()
            self._listener = ports.reserve(self.port)
        await end(*self._carrying)

    async def _reset(self) -> None:
        await end(*self._carrying)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            await readable(listener)
            try:
                client, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            client.setblocking(False)
            send_at_once(client)
            carrying = asyncio.create_task(Connection(client, self._line, self._losses).run(self._upstream))
            self._carrying.add(carrying)
            carrying.add_done_callback(self._carrying.discard)
            carrying.add_done_callback(lambda _, client=client: client.close())  # also if it never began


def address_of(conninfo: str) -> Address:
    """Where a client with this URL or DSN would connect. Raises ValueError when it names several servers."""
    parameters = conninfo_to_dict(conninfo)
    host = str(parameters.get("hostaddr") or parameters.get("host") or ports.LOOPBACK)
    port = str(parameters.get("port") or 5432)
    if "," in host + port:
        raise ValueError("a proxy stands before one server, and the connection string names several")
    return Path(host) / f".s.PGSQL.{port}" if host.startswith("/") else (host, int(port))


async def readable(listener: socket.socket) -> None:
    """Until somebody wants to connect. Unlike accepting, this can be cancelled without losing a connection."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(listener, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(listener)


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks, and return when they have cleaned up."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
