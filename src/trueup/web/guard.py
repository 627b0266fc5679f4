"""A guard in front of an ASGI application, for tools that are served to the people who run them.

It refuses, before the application sees anything: requests for other hosts (DNS rebinding), requests without the token where one
is set, writes that another site's page has made a browser send, and bodies that are too large or too slow. It sets the headers
that keep a page from being framed, cached or made to run what it did not bring along. No package is needed for it.

`check_bind` is for the start: without a token only this machine may reach a server.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

from trueup.errors import ConfigError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MAX_BODY = 1 << 20
READ_WITHIN = 30.0  # seconds for a whole body
MIN_TOKEN = 16  # characters
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSP = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

_HOST = re.compile(rb"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rb"https?://([^/?#@\s]{1,300})")


def no_text(name: str, given: Collection[str]) -> Collection[str]:
    """Raises ConfigError for a text in place of a collection: its characters would be the names."""
    if isinstance(given, str):
        raise ConfigError(f"{name}={given!r}: give a list: [{given!r}]")
    return given


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may ask, and how much.

    `hosts` are the names that this server is called by, beside those of loopback. `token` is what a request must bring, as
    `Authorization: Bearer …`, or as the password of a browser's login. `streamed` finds paths (`"PUT /files/…"`) whose bodies
    the application reads and bounds itself.
    """

    hosts: Collection[str] = ()
    token: str | None = field(default=None, repr=False)
    max_body: int = MAX_BODY
    read_within: float = READ_WITHIN
    streamed: re.Pattern[str] | None = None
    csp: str = CSP

    def __post_init__(self) -> None:
        """Raises ConfigError for one host that is no list of hosts."""
        no_text("hosts", self.hosts)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, **more: Any) -> Rules:
        """HTTP_TOKEN, and HTTP_HOSTS with commas between. Raises ConfigError for a token that could be guessed."""
        token = environment.get("HTTP_TOKEN") or None
        if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
            raise ConfigError(f"HTTP_TOKEN: {MIN_TOKEN} or more ASCII characters are needed")
        hosts = [host.strip() for host in environment.get("HTTP_HOSTS", "").split(",") if host.strip()]
        return cls(hosts=hosts, token=token, **more)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_bind(host: str, rules: Rules) -> None:
    """Raises ConfigError when others than this machine could reach the server and nothing asks who they are."""
    if rules.token is None and not is_loopback(host):
        raise ConfigError(
            f"host {host}: other machines could reach this server, and it has no login; set HTTP_TOKEN to a secret of "
            f"{MIN_TOKEN} or more characters, or serve on 127.0.0.1"
        )


def rules_for(host: str, environment: Mapping[str, str] = os.environ, **more: Any) -> Rules:
    """The rules of a server that binds to this host, from the environment. Raises ConfigError as `check_bind` does."""
    rules = Rules.from_environment(environment, **more)
    check_bind(host, rules)
    return replace(rules, hosts=[*rules.hosts, host])


class Guard:
    """`Guard(application, rules)` is an ASGI application, too."""

    def __init__(self, application: Application, rules: Rules = Rules()) -> None:  # noqa: B008 - it is frozen
        self._application = application
        self._rules = rules
        self._hosts = LOOPBACK | {host.lower().strip("[]").rstrip(".") for host in rules.hosts}
        self._added = _security_headers(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._application(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if scope["type"] == "websocket":
            if refusal is None:
                await self._application(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        secured = self._secured(send)
        if refusal is None and _has_body(scope) and not self._is_streamed(scope):
            body = await self._body(receive)
            if body is None:
                return  # the client is gone
            if isinstance(body, _Refusal):
                refusal = body
            else:
                receive = _replayed(body, receive)
        if refusal is not None:
            await _refuse(secured, refusal)
            return
        await self._application(scope, receive, secured)

    def _refusal(self, scope: Scope) -> _Refusal | None:
        headers = _Headers(scope["headers"])
        hosts = headers.all(b"host")
        host = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host is None or _name(host[1]) not in self._hosts:
            return _Refusal(421, "unknown host name; set HTTP_HOSTS to the server's host names")
        if self._rules.token is not None and not _has_token(headers.all(b"authorization"), self._rules.token):
            return _Refusal(
                401, "a token is needed", ((b"www-authenticate", b'Basic realm="trueup", charset="UTF-8"'),)
            )
        writes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if writes and not _is_same_site(headers, hosts[0]):
            return _Refusal(403, "requests from other sites are refused")
        lengths = headers.all(b"content-length")
        if not self._is_streamed(scope) and any(_size(length) > self._rules.max_body for length in lengths):
            return self._too_large()
        return None

    async def _body(self, receive: Receive) -> bytes | _Refusal | None:
        """All of it, within the limits; None when the client went away."""
        body = bytearray()
        try:
            async with asyncio.timeout(self._rules.read_within):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._rules.max_body:
                        return self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            return _Refusal(408, f"the body did not arrive within {self._rules.read_within:g} s", _CLOSE)

    def _too_large(self) -> _Refusal:
        return _Refusal(413, f"the body may have at most {self._rules.max_body:,} bytes", _CLOSE)

    def _is_streamed(self, scope: Scope) -> bool:
        streamed = self._rules.streamed
        if streamed is None or scope["type"] != "http":
            return False
        return streamed.fullmatch(f"{scope['method']} {scope['path']}") is not None

    def _secured(self, send: Send) -> Send:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                message["headers"] = [*given, *(each for each in self._added if each[0] not in names)]
            await send(message)

        return secured


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


_CLOSE = ((b"connection", b"close"),)  # what is still on its way would be taken for the next request


class _Headers:
    def __init__(self, pairs: Collection[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs

    def all(self, name: bytes) -> list[bytes]:
        return [value.strip() for key, value in self._pairs if key.lower() == name]


def _has_body(scope: Scope) -> bool:
    headers = _Headers(scope["headers"])
    if headers.all(b"transfer-encoding") or not scope.get("http_version", "1.1").startswith("1"):
        return True
    return any(_size(length) > 0 for length in headers.all(b"content-length"))


def _security_headers(rules: Rules) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-security-policy", rules.csp.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),  # with "no-referrer" browsers send forms with `Origin: null`
        (b"cache-control", b"no-store"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    )


def _name(host: bytes) -> str:
    return host.decode("ascii").lower().strip("[]").rstrip(".")


def _size(length: bytes) -> int:
    return int(length) if length.isdigit() and len(length) < 20 else 1 << 62


def _has_token(authorizations: list[bytes], token: str) -> bool:
    if len(authorizations) != 1:
        return False
    scheme, _, given = authorizations[0].partition(b" ")
    match scheme.lower():
        case b"bearer":
            return hmac.compare_digest(given.strip(), token.encode("ascii"))
        case b"basic":
            try:
                _, _, password = b64decode(given.strip(), validate=True).partition(b":")
            except ValueError:
                return False
            return hmac.compare_digest(password, token.encode("ascii"))
    return False


def _is_same_site(headers: _Headers, host: bytes) -> bool:
    """Browsers say where a write comes from, with a body or without; programs say nothing."""
    if any(site not in (b"same-origin", b"none") for site in headers.all(b"sec-fetch-site")):
        return False
    origins = [_ORIGIN.fullmatch(origin) for origin in headers.all(b"origin")]
    return all(origin is not None and origin[1].lower() == host.lower() for origin in origins)


def _replayed(body: bytes, receive: Receive) -> Receive:
    told = False

    async def replay() -> Message:
        nonlocal told
        if told:
            return await receive()  # that the client went away
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, refusal: _Refusal) -> None:
    body = f"{refusal.reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": [*headers, *refusal.headers]})
    await send({"type": "http.response.body", "body": body})
