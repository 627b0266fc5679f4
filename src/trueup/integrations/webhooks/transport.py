"""Connects only to addresses that the guard permits.

httpx's own transport takes no network backend, so this is one over httpcore's connections, through the public interfaces of both.
Host header and TLS name stay those of the URL; only the socket's address is decided here. It is used without an
`httpx.AsyncClient`, which would write whole URLs to the log, keep the receiver's cookies, and look for proxies.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import anyio
import httpcore
import httpx

from trueup.integrations.webhooks.guard import AddressGuard

MAX_EARLY = 64 << 10  # bytes of an answer that are read before everything is sent
# A redirect or an error, after any number of informational answers: the receiver does not want the rest. An informational answer
# ends at its first empty line and nowhere else (possessive): a receiver that sends dozens would otherwise stop the event loop.
_REFUSAL = re.compile(rb"(?>HTTP/1\.[0-9] 1.*?\r\n\r\n)*+HTTP/1\.[0-9] [3-9]", re.DOTALL)

# A name that httpx has, too: it mirrors them.
_ERRORS: dict[type[Exception], type[httpx.TransportError]] = {
    getattr(httpcore, name): getattr(httpx, name)
    for name in (
        *("ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"),
        *("ConnectError", "ReadError", "WriteError"),
        *("LocalProtocolError", "RemoteProtocolError", "UnsupportedProtocol"),
    )
}


@dataclass
class _Sending:
    """Whether everything that was to be sent has been."""

    complete: bool = True


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens sockets. The only place where a host is resolved."""

    def __init__(self, guard: AddressGuard) -> None:
        self.sending = _Sending()
        self._guard = guard
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._guard.addresses(host)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        share = None if timeout is None else timeout / len(addresses)
        last: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                stream = await self._sockets.connect_tcp(str(address), port, share, local_address, socket_options)
                return _Stream(stream, self.sending)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise last

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that listens while it sends, and that is closed when it is cancelled while hands are shaken.

    A receiver may refuse before it has read everything, and read no further: a client that first sends everything never sees the refusal.
    So a refusal that arrives meanwhile ends the sending, as httpcore expects of a broken connection, and is read next. An
    answer of any other kind waits until all is sent.

    httpcore leaves a connection open that was cancelled in its TLS handshake, and a receiver that never answers would cost
    us a socket per delivery.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream, state: _Sending) -> None:
        self._stream = stream
        self._state = state
        self._early = b""  # bytes read while sending

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._state)
        except BaseException:
            await self._stream.aclose()
            raise

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._early:
            early, self._early = self._early[:max_bytes], self._early[max_bytes:]
            return early
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not buffer:
            return
        self._state.complete = False
        sending = asyncio.ensure_future(self._stream.write(buffer, timeout))
        listening = asyncio.ensure_future(self._until_refused())
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise httpcore.WriteError("the receiver answered before the whole message was sent")
            await sending
            self._state.complete = True
        finally:
            await _ended(sending, listening)

    async def _until_refused(self) -> None:
        """Return when a refusal has begun to arrive. Waits for ever once the receiver can send nothing more."""
        with suppress(httpcore.ReadError, anyio.BusyResourceError):
            while len(self._early) < MAX_EARLY and (more := await self._stream.read(MAX_EARLY)):
                self._early += more
                if _REFUSAL.match(self._early):
                    return
        await asyncio.get_running_loop().create_future()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class GuardedTransport(httpx.AsyncBaseTransport):
    """One connection per request, closed with its answer. `tls` may be None where only http is spoken.

    A connection is never used for a second request. HTTP/1.1 tells answers apart by their order alone, so anything that a
    receiver, or a proxy before it, sends beyond its answer would be taken for the answer to the next message.
    """

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext | None) -> None:
        self._guard = guard
        self._tls = tls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        sent = httpcore.Request(
            method=request.method,
            url=target,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        backend = GuardedBackend(self._guard)
        connection = httpcore.AsyncHTTPConnection(target.origin, ssl_context=self._tls, network_backend=backend)
        try:
            with _errors_of_httpx():
                answer = await connection.handle_async_request(sent)
            if answer.status < 300 and not backend.sending.complete:
                raise httpx.WriteError("the connection broke before the whole message was sent")
        except BaseException:
            await connection.aclose()
            raise
        return httpx.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream, connection),
            extensions=answer.extensions,
        )


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: Any, connection: httpcore.AsyncHTTPConnection) -> None:
        self._stream = stream
        self._connection = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        with _errors_of_httpx():
            try:
                await self._stream.aclose()
            finally:
                await self._connection.aclose()


async def _ended(*tasks: asyncio.Future[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _errors_of_httpx() -> Iterator[None]:
    try:
        yield
    except tuple(_ERRORS) as error:
        raise _ERRORS[type(error)](str(error)) from error


@cache
def default_tls() -> ssl.SSLContext:
    """Made once, and not during a delivery: reading the certificates would hold up the event loop.

    SSL_CERT_FILE and SSL_CERT_DIR are respected.
    """
    return httpx.create_ssl_context()
