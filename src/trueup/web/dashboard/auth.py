"""Who sends a request, and what they may do: a viewer reads, an operator also acts.

`Open` lets every visitor in as an operator and is for loopback only. `Tokens` asks for a secret: as `Authorization: Bearer …`
from programs, or once on the login page from a browser, which gets a signed cookie. `ProxyHeader` takes the user's name from a
trusted proxy in front, and from no other client.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from typing import Protocol

from starlette.requests import HTTPConnection

from trueup.errors import ConfigError
from trueup.web.guard import MIN_TOKEN, no_text

COOKIE = "trueup_session"
SESSION_FOR = 12 * 3600  # seconds: a working day
MAX_NAME = 100  # characters of a user's name


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    role: Role

    @property
    def may_act(self) -> bool:
        return self.role is Role.OPERATOR


class Auth(Protocol):
    asks: bool
    """Whether visitors must log in: only then may a server be reachable from other machines."""
    key: bytes
    """What forms are signed with."""

    def person(self, connection: HTTPConnection) -> Person | None:
        """The person who sends the request; None if unknown."""
        ...


class Open:
    """Every visitor is an operator: for a dashboard that only this machine can reach."""

    asks = False

    def __init__(self) -> None:
        self.key = secrets.token_bytes(32)

    def person(self, connection: HTTPConnection) -> Person | None:
        return Person("local", Role.OPERATOR)


class Tokens:
    """`Tokens({"a long secret": "operator", "another one": ("Grafana", "viewer")})`."""

    asks = True

    def __init__(self, tokens: Mapping[str, str | tuple[str, str]]) -> None:
        """Raises ConfigError for a token that could be guessed, an unknown role, or none at all."""
        if not tokens:
            raise ConfigError("auth: no token is given; give at least one, or leave auth out and serve on loopback")
        self._people: dict[bytes, Person] = {}
        for token, given in tokens.items():
            if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
                raise ConfigError(f"auth: a token needs {MIN_TOKEN} or more printable ASCII characters")
            name, role = (given, given) if isinstance(given, str) else given
            self._people[token.encode()] = Person(name[:MAX_NAME], _role(role))
        self.key = hashlib.sha256(b"trueup dashboard\0" + b"\0".join(sorted(self._people))).digest()

    def person(self, connection: HTTPConnection) -> Person | None:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme:
            return self.by_token(given.strip()) if scheme.lower() == "bearer" else None
        return self._by_session(connection.cookies.get(COOKIE, ""))

    def by_token(self, given: str) -> Person | None:
        found = None
        for token, person in self._people.items():  # compares all of them, so that the time reveals nothing
            if hmac.compare_digest(token, given.encode("utf-8", "replace")):
                found = person
        return found

    def session(self, token: str) -> str:
        """The value of a cookie that stands for this token for SESSION_FOR."""
        until = str(int(time.time()) + SESSION_FOR)
        mark = hashlib.sha256(token.encode()).digest()[:12]
        return f"{_packed(mark)}.{until}.{_signed(token.encode(), until)}"

    def why_logged_out(self, connection: HTTPConnection) -> str | None:
        """The explanation for a person whose browser has an expired session; None when it has none."""
        _, _, rest = connection.cookies.get(COOKIE, "").partition(".")
        until = rest.partition(".")[0]
        if not until.isdigit() or len(until) > 12 or self.person(connection) is not None:
            return None
        if int(until) < time.time():
            return f"You were logged out after {SESSION_FOR // 3600} hours."
        return "The token that you logged in with is no longer accepted; log in with the one that has replaced it."

    def _by_session(self, cookie: str) -> Person | None:
        try:
            packed, until, signature = cookie.split(".")
            mark = urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        except ValueError:
            return None
        # Signed with its own token, so that it stays valid when others change.
        token = next((each for each in self._people if hashlib.sha256(each).digest()[:12] == mark), None)
        if token is None or not hmac.compare_digest(
            signature.encode("utf-8", "replace"), _signed(token, until).encode()
        ):
            return None
        if not until.isdigit() or int(until) < time.time():
            return None
        return self._people[token]


class ProxyHeader:
    """A proxy in front has logged people in and names them in a header; requests that bypass it are refused.

    `operators` are the names that may act; other people whom the proxy names may look. `proxies` are the addresses or networks
    that the proxy speaks from.
    """

    asks = True

    def __init__(
        self,
        header: str = "x-forwarded-user",
        *,
        operators: Collection[str] = (),
        proxies: Collection[str] = ("127.0.0.1", "::1"),
        secret: str | None = None,
    ) -> None:
        """`secret` signs forms; give one when several processes serve the dashboard. Raises ConfigError for a bad address, and for one name that is
        no list of names."""
        self._header = header.lower()
        self._operators = frozenset(no_text("operators", operators))
        try:
            self._proxies = [ip_network(proxy) for proxy in no_text("proxies", proxies)]
        except ValueError as error:
            raise ConfigError(f"auth: proxies={list(proxies)!r}: {error}") from None
        self.key = hashlib.sha256(secret.encode()).digest() if secret else secrets.token_bytes(32)

    def person(self, connection: HTTPConnection) -> Person | None:
        if connection.client is None or not self._is_proxy(connection.client.host):
            return None
        names = connection.headers.getlist(self._header)
        if len(names) != 1 or not names[0].strip():
            return None
        name = names[0].strip()
        return Person(name[:MAX_NAME], Role.OPERATOR if name in self._operators else Role.VIEWER)

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise ConfigError(f"auth: role {text!r} is not known; it is 'viewer' or 'operator'") from None


def _signed(token: bytes, until: str) -> str:
    key = hashlib.sha256(b"trueup dashboard session\0" + token).digest()
    return _packed(hmac.digest(key, until.encode("utf-8", "replace"), "sha256"))


def _packed(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")
