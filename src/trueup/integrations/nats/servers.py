"""Reads the servers and logins of NATS from URLs and options of nats-py. Pure.

Users, passwords and tokens are taken out of the URLs and passed separately. nats-py would send them without decoding (`%40` for
an `@`), and it cannot show what is not in a URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from trueup.errors import ConfigError

# The options that users may give. The others control how the connection is kept, which this package does.
OPTIONS = frozenset(
    {
        *("name", "inbox_prefix", "ping_interval", "max_outstanding_pings"),
        *("tls", "tls_hostname", "tls_handshake_first"),
        *("user", "password", "token", "signature_cb", "user_jwt_cb"),
        *("user_credentials", "nkeys_seed", "nkeys_seed_str"),
    }
)
_LOGIN = ("user", "password", "token")
_NKEYS = ("user_credentials", "nkeys_seed", "nkeys_seed_str")
_NEXT = re.compile(r",(?=(?:nats|tls)://)")
_UNUSABLE = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")


class Servers(NamedTuple):
    """Addresses without secrets, to be tried in any order, and the options for nats-py."""

    addresses: tuple[str, ...]
    options: dict[str, Any]

    def __repr__(self) -> str:
        return ", ".join(self.addresses)


def parse_servers(urls: object, connect: Mapping[str, Any] | None) -> Servers:
    """One URL, several separated by commas, or a list of them. Raises ConfigError, which never quotes a URL."""
    parts = _NEXT.split(urls) if isinstance(urls, str) else urls
    if not isinstance(parts, list | tuple) or not parts:
        raise ConfigError('a NATS URL is needed; write it like "nats://host:4222"')
    parsed = [_parsed(part) for part in parts]
    logins = [login for login in map(_login, parsed) if login]
    if any(login != logins[0] for login in logins):
        raise ConfigError("the URLs of NATS have different users, passwords or tokens; all servers share one login")
    return Servers(
        tuple(f"{url.scheme}://{url.netloc.rpartition('@')[2]}" for url in parsed),
        _checked(dict(connect or {}), logins[0] if logins else {}),
    )


def _parsed(text: object) -> SplitResult:
    fault = ConfigError('this is not the URL of a NATS server; write it like "nats://host:4222" or "tls://host:4222"')
    if not isinstance(text, str) or _UNUSABLE.search(text):
        raise fault
    try:
        url = urlsplit(text)
        usable = url.scheme in ("nats", "tls") and url.hostname and url.port != 0
    except ValueError:
        raise fault from None
    if not usable or url.path not in ("", "/") or url.query or url.fragment or url.netloc.count("@") > 1:
        raise fault
    return url


def _login(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    if url.password is None:
        return {"token": unquote(url.username)}  # so every NATS client reads a lone user
    return {"user": unquote(url.username), "password": unquote(url.password)}


def _checked(connect: dict[str, Any], login: dict[str, str]) -> dict[str, Any]:
    for name in connect:
        if name not in OPTIONS:
            raise ConfigError(f"connect={{{name!r}: …}}: it takes {', '.join(sorted(OPTIONS))}")
    if login and any(name in connect for name in _LOGIN):
        raise ConfigError("the URL of NATS contains a user, password or token, and connect= sets another one")
    if any(name in connect for name in _NKEYS) and find_spec("nkeys") is None:
        raise ConfigError("logging in to NATS with nkeys or a credentials file needs a package: pip install nkeys")
    return connect | login
