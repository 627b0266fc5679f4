"""A connection to NATS: opened on first use, dropped when it breaks, opened again by the next use.

nats-py can reconnect by itself, and buffers messages until then. Here the job is the buffer: the message of a failed attempt must
not be sent hours later, after its job has ended in another way. So reconnecting and buffering are off, an attempt fails at once
when the connection is gone, and nothing runs in the background while NATS is unreachable.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from trueup.durations import format_duration
from trueup.integrations.nats.errors import NatsRefused, NatsUnavailable
from trueup.integrations.nats.servers import Servers
from trueup.texts import describe

log = logging.getLogger("trueup.nats")

T = TypeVar("T")

CLOSE_WITHIN = 1.0  # seconds; normally it takes none
PING_EVERY = 5  # seconds; a connection is dead after three without an answer: after 15 s, and not six minutes

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "(.*)"', re.IGNORECASE)
# Not "authentication timeout", which is about the moment.
_LOGIN_REFUSED = re.compile("authorization violation|authentication (?:expired|revoked)", re.IGNORECASE)


class _Client(Client):
    """A client that closes at once, whatever the server does."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """The only internal of nats-py that is overridden, because it has no public way for this. nats-py would first flush its
        buffer, waiting for a server that does not read; if that fails, it silently leaves its tasks and the socket open. The job
        sends unacknowledged messages again.
        """
        self._pending, self._pending_data_size = [], 0
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        await super()._close(status, do_cbs)


class Connection:
    """One connection to one server. Belongs to the event loop it was opened on."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.client = _Client()
        self.jetstream = JetStreamContext(self.client)
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking: set[asyncio.Future[Any]] = set()
        self._waiting: dict[asyncio.Future[None], str] = {}
        self._deaf = False  # not permitted to subscribe to the inbox of answers
        self._opened = False
        self._closing = False
        self._error: Exception | None = None

    @property
    def usable(self) -> bool:
        # The server reports once per connection that we may not subscribe. A new connection finds out whether we may by now.
        return self._opened and not self._deaf and not self._lost.done() and not self.client.is_closed

    async def open(self, options: dict[str, Any], timeout: timedelta) -> None:
        """Raises NatsRefused or NatsUnavailable; nothing is left open then."""
        seconds = timeout.total_seconds()
        kept = {
            "name": "trueup",
            "ping_interval": PING_EVERY,
            **options,
            "allow_reconnect": False,
            "pending_size": 0,
            "connect_timeout": seconds,
            # The smallest value that ends: it tries twice, and otherwise waits two seconds in between. 0 means for ever.
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "error_cb": self._noticed,
            "closed_cb": self._closed,
        }
        try:
            async with asyncio.timeout(seconds):
                await self.client.connect([self.server], **kept)
        except TimeoutError:
            await self.close()
            raise NatsUnavailable(f"{self.server} has not answered within {format_duration(timeout)}") from None
        except Exception as error:
            await self.close()
            raise self._failure(error) from None
        except BaseException:
            await self.close()
            raise
        self._opened = True
        log.info("NATS connected", extra={"server": self.server})

    async def ask(self, question: Coroutine[Any, Any, T], subject: str, timeout: timedelta) -> T:
        """Publish under this subject and return the answer. Raises what nats-py raises, NatsRefused or NatsUnavailable."""
        asking = asyncio.ensure_future(question)
        asking.add_done_callback(_look_at)
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        denied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[denied] = subject.lower()
        try:
            ends: set[asyncio.Future[Any]] = {asking, denied, self._lost}
            await asyncio.wait(ends, timeout=timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            if self._deaf:
                raise NatsRefused(f"{self.server} does not permit the user to subscribe to its inbox")
            if denied.done():
                raise NatsRefused(f"{self.server} does not permit the user to publish to {subject!r}")
            if self._lost.done():
                raise NatsUnavailable(f"{self.server}: the connection was lost before the answer arrived")
            raise NatsUnavailable(f"{self.server} has not answered within {format_duration(timeout)}")
        finally:
            del self._waiting[denied]
            asking.cancel()

    async def close(self) -> None:
        """Close at once, without errors. May be called twice."""
        self._closing = True
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await self.client.close()
                if self._opened:  # it may be closing itself, and reports that before the end
                    await asyncio.shield(self._lost)
                await asyncio.gather(*self._asking, return_exceptions=True)  # no caller waits for them any more
        await asyncio.sleep(0)  # what was cancelled ends

    async def _noticed(self, error: Exception) -> None:
        self._error = error
        log.debug("NATS client reported", extra={"server": self.server, "error": _said(error)})
        if denied := _DENIED.search(str(error)):
            what, where = denied[1].lower(), denied[2].lower()
            self._deaf = self._deaf or what == "subscription"
            for waiting, subject in self._waiting.items():
                if (self._deaf or subject == where) and not waiting.done():
                    waiting.set_result(None)

    async def _closed(self) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        if self._opened and not self._closing:
            error = self._error or self.client.last_error
            said = None if error is None else _said(error)
            log.warning("NATS connection lost", extra={"server": self.server, "error": said})

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, nats.errors.NoServersError) and self._error is not None:
            error = self._error  # this one says why
        if isinstance(error, nats.errors.Error) and _LOGIN_REFUSED.search(str(error)):
            return NatsRefused(f"{self.server} refused the login")
        return NatsUnavailable(f"{self.server} cannot be reached: {_said(error)}")


class Connections:
    """The connection of each event loop. Concurrent callers share one attempt to open it."""

    def __init__(self, servers: Servers, timeout: timedelta) -> None:
        self._servers = servers
        self._timeout = timeout
        self._open: dict[asyncio.AbstractEventLoop, Connection] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Connection]] = {}

    async def get(self) -> Connection:
        """Raises NatsRefused or NatsUnavailable within the timeout."""
        loop = asyncio.get_running_loop()
        connection = self._open.get(loop)
        if connection is not None and connection.usable:
            return connection
        opening = self._opening.get(loop)
        if opening is None:
            opening = self._opening[loop] = loop.create_task(self._renew(loop))
            opening.add_done_callback(_look_at)
        # `wait`, because awaiting it would let a cancelled caller cancel it for the others.
        await asyncio.wait({opening})
        if opening.cancelled():
            raise NatsUnavailable(f"{self._servers!r}: it was closed while a connection was being made")
        return opening.result()

    async def close(self) -> None:
        """Close the connection of this event loop; the next call opens another one."""
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is not None:
            opening.cancel()
            await asyncio.wait({opening})
        connection = self._open.pop(loop, None)
        if connection is not None:
            await connection.close()

    async def _renew(self, loop: asyncio.AbstractEventLoop) -> Connection:
        for other in [other for other in list(self._open) if other.is_closed()]:
            self._open.pop(other, None)
        try:
            broken = self._open.pop(loop, None)
            if broken is not None:
                await broken.close()
            connection = self._open[loop] = await self._first()
        finally:
            self._opening.pop(loop, None)
        return connection

    async def _first(self) -> Connection:
        """A connection to the first server that accepts us; each gets its share of the time."""
        addresses = random.sample(self._servers.addresses, len(self._servers.addresses))
        failures: list[Exception] = []
        for address in addresses:
            connection = Connection(address)
            try:
                await connection.open(self._servers.options, self._timeout / len(addresses))
            except (NatsRefused, NatsUnavailable) as failure:
                failures.append(failure)
            else:
                return connection
        # An unreachable server may accept a login that the others do not accept, or no longer.
        refused = all(isinstance(failure, NatsRefused) for failure in failures)
        text = "; ".join(str(failure) for failure in failures)
        raise NatsRefused(text) if refused else NatsUnavailable(text)


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        # For a key or credentials: the value may be the secret itself instead of a file's name.
        return f"{error.strerror}: a file that connect= names"
    return describe(error) or type(error).__name__


def _look_at(ended: asyncio.Future[Any]) -> None:
    """The waiting task has gone: keep asyncio from logging an error that was never retrieved."""
    if not ended.cancelled():
        ended.exception()
