"""Connections that are only made to addresses the guard let through.

httpx's own transport takes no network backend, so this is one over httpcore's pool, through the public interfaces of both.
Host header and TLS name stay those of the URL; only where the socket goes is decided here. It is used without an
`httpx.AsyncClient`, which would write whole URLs to the log, keep the receiver's cookies, and look for proxies.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpcore
import httpx

from trueup.integrations.webhooks.guard import Guard

KEEPALIVE = 4.0  # seconds, less than the 5 after which many servers close: a request that crosses the close is lost
MOST_IDLE = 20

# A name that httpx has, too: it mirrors them.
_ERRORS: dict[type[Exception], type[httpx.TransportError]] = {
    getattr(httpcore, name): getattr(httpx, name)
    for name in (
        *("ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout"),
        *("ConnectError", "ReadError", "WriteError"),
        *("LocalProtocolError", "RemoteProtocolError", "UnsupportedProtocol"),
    )
}


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens sockets. The only place where a host becomes an address."""

    def __init__(self, guard: Guard) -> None:
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
            addresses = await self._guard.addresses(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        share = None if timeout is None else timeout / len(addresses)
        last: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                stream = await self._sockets.connect_tcp(str(address), port, share, local_address, socket_options)
                return _Stream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise last

    async def sleep(self, seconds: float) -> None:
        await self._sockets.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that is closed when it is cancelled while hands are shaken.

    httpcore leaves it open then, and a receiver that never answers would cost us a socket per delivery.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._stream.aclose()
            raise

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class GuardedTransport(httpx.AsyncBaseTransport):
    """A pool of connections. Belongs to the event loop it is first used on. `tls` may be None where only http is spoken."""

    def __init__(self, guard: Guard, tls: ssl.SSLContext | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            # Who calls bounds how many there are. A request cancelled while it waits for its turn would keep its place.
            max_connections=None,
            max_keepalive_connections=MOST_IDLE,
            keepalive_expiry=KEEPALIVE,
            network_backend=GuardedBackend(guard),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _errors_of_httpx():
            answer = await self._pool.handle_async_request(sent)
        return httpx.Response(
            status_code=answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            async for part in self._stream:
                yield part

    async def aclose(self) -> None:
        with _errors_of_httpx():
            await self._stream.aclose()


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
