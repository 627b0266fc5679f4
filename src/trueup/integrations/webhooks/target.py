"""Checks the URL and headers of a webhook: what cannot or must not be sent is refused before the delivery.

Only httpx, which also sends it, parses the URL: two parsers may see two hosts in one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

import httpx

from trueup.errors import ConfigError

MAX_KEY = 1_000  # bytes: servers take some 8,000 for all headers
HIDDEN = "***"
MIN_HIDDEN = 6  # characters; shorter parts of a secret stay in an answer

# Headers that decide where a message ends, or on which proxies and receivers rely.
_OURS = {
    *("accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
    *("transfer-encoding", "upgrade", "idempotency-key", "webhook-id", "webhook-signature", "webhook-timestamp"),
}
_HARMLESS = _OURS | {"accept", "content-type", "user-agent"}
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")  # httpx would take anything, percent-encoded
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")
_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F)).replace("%", "")


def parse_url(text: object) -> httpx.URL:
    """Raises ConfigError, whose text never quotes the URL: it may hold a password."""
    try:
        url = httpx.URL(text) if isinstance(text, str) else None
    except httpx.InvalidURL:
        url = None
    if url is None or url.scheme not in ("http", "https") or not _HOST.fullmatch(url.raw_host):
        raise ConfigError('this is not the URL of a webhook; write it like "https://example.com/hooks"')
    if url.userinfo:
        raise ConfigError(
            f'{shown(url)}: the URL must not contain a user or password; use headers={{"Authorization": …}}'
        )
    if url.port is not None and not 1 <= url.port <= 65535:
        raise ConfigError(f"{shown(url)}: there is no such port")
    return url


def shown(url: httpx.URL) -> str:
    """The URL for display, without its path and query: those are often the credential."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Raises ConfigError, naming the header and not its value."""
    given: Mapping[Any, Any] = headers or {}
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r:.80} is not the name of a header")
        if name.lower() in _OURS:
            raise ConfigError(f"header {name}: trueup sets it")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ConfigError(f"header {name}: one line of ASCII text is needed, without leading or trailing spaces")
    return {name.lower(): value for name, value in given.items()}


def header_of(key: object) -> str:
    """The idempotency key as a header can hold it: everything but visible ASCII, and "%" itself, is percent-encoded.

    Two keys never become the same.
    """
    try:
        text = quote(key, safe=_VISIBLE) if isinstance(key, str) else ""
    except UnicodeEncodeError:
        text = ""
    if not 1 <= len(text) <= MAX_KEY:
        raise ConfigError(f"key={key!r:.80}: 1 to {MAX_KEY} bytes of text are needed")
    return text


def without_secrets(text: str, request: httpx.Request) -> str:
    """A receiver's answer without quotations of our path, query and headers, however it has escaped them."""
    url = request.url
    values = [value for name, value in request.headers.items() if name not in _HARMLESS]
    query = url.query.decode("ascii")
    secrets = {url.path, url.raw_path.decode("ascii"), query, *re.split("[&=]", query), *values}
    secrets |= {value for _, value in url.params.multi_items()}  # as they read when decoded
    secrets |= {word for value in values for word in value.split()}
    # Short ones are too likely to be plain words.
    secrets = {secret for secret in secrets if len(secret) >= MIN_HIDDEN}
    secrets |= {escaped for secret in secrets for escaped in _escaped(secret)}
    # Longest first, or the rest of a longer one would show.
    for secret in sorted(secrets, key=len, reverse=True):
        text = _without_beginning(text.replace(secret, HIDDEN), secret)
    return text


def _escaped(secret: str) -> Iterator[str]:
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    yield escape(secret)
    yield quote(secret)
    yield quote(secret, safe="")


def _without_beginning(text: str, secret: str) -> str:
    """The answer is cut, and may end in the middle of a secret: remove that beginning of it, too."""
    for length in range(min(len(secret) - 1, len(text)), MIN_HIDDEN - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + HIDDEN
    return text
