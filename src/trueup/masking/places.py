"""Secrets that are known by their place: between a user and a host, in a URL or without a scheme."""

from __future__ import annotations

import re

from trueup.masking.mark import MASK

_WORD = re.compile(r"\S++", re.ASCII)
# Only well-known schemes start a new URL in a list: anything else after a comma may be the middle of a password.
_NEXT_URL = re.compile(r"([,;])(?=(?:postgres|postgresql|redis|rediss|nats|tls|https?)://)", re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}(?![0-9A-Za-z_%])")
_LONG_TOKEN = re.compile(r"(?=[a-z_.-]*[0-9])[\w.-]{20,}+", re.ASCII | re.IGNORECASE)

_UNQUOTED = re.compile(r"[^\s\"'<>`]++", re.ASCII)
_USER = re.compile(r"(?<![\w.+%~-])([\w.+%~-]*+):", re.ASCII)
_HOST = re.compile(
    r"(?:(?=[0-9.-]{0,60}+[A-Za-z_])[\w][\w.-]*+|[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?::[0-9]{1,5})?+(?![\w:])|\[[0-9a-f:.]|\Z",
    re.ASCII,
)
# After an @: the digest of an image behind its tag, the moment in an idempotency key.
_NO_HOST = re.compile(r"sha[0-9]+:|[0-9]{8}T[0-9]{6}")
# Words before a colon and an address of mail, and schemes without slashes.
_NOT_USERS = frozenset(
    [
        "mailto",
        "mail",
        "email",
        "e-mail",
        "from",
        "to",
        "cc",
        "bcc",
        "reply-to",
        "sender",
        "recipient",
        "author",
        "contact",
        "sip",
        "sips",
        "xmpp",
        "acct",
        "pkg",
        "npm",
    ]
)


# A line of `.pgpass`: host:port:database:user:password. A place in a file, a time, an address and a log's line have colons, too.
_PGPASS = re.compile(
    r"(?<![^\s\"'`])((?:\*|(?=[0-9.-]{0,60}+[A-Za-z_])[\w.-]{1,200}+|[0-9]{1,3}(?:\.[0-9]{1,3}){3}):(?:\*|[0-9]{4,5})"
    r":(?:\*|(?![0-9]++:)(?!(?:debug|info|notice|warn|warning|error|critical|fatal):)[\w.-]{1,64}+):(?:\*|[\w.@-]{1,64}+):)"
    r"((?:[^\s:\\\"'`]|\\[:\\])++)(?![:\w])",
    re.ASCII | re.IGNORECASE,
)


def mask_places(text: str) -> str:
    if "://" in text:
        text = _WORD.sub(lambda word: _mask_urls(word[0]) if "://" in word[0] else word[0], text)
    if text.count(":") >= 4:
        text = _PGPASS.sub(rf"\g<1>{MASK}", text)
    if "@" in text:
        text = _UNQUOTED.sub(lambda word: _mask_login(word[0]) if "@" in word[0] else word[0], text)
    return text


def mask_url(url: str) -> str:
    scheme, found, body = url.partition("://")
    if not found:
        return url
    # The last @: those before it belong to a password that is not URL-encoded.
    credentials, at, hosts = body.rpartition("@")
    if not at:
        return f"{scheme}://{_mask_cut_off(body)}"
    user, colon, _ = credentials.partition(":")
    if colon:
        return f"{scheme}://{user}:{MASK}@{hosts}"
    # NATS reads a lone user as a token, and so do some servers of HTTP.
    if scheme.lower().endswith("nats") or (scheme.lower().endswith(("http", "https")) and _LONG_TOKEN.fullmatch(user)):
        return f"{scheme}://{MASK}@{hosts}"
    return url


def _mask_urls(word: str) -> str:
    return "".join(mask_url(url) for url in _NEXT_URL.split(word))


def _mask_cut_off(body: str) -> str:
    """Hide what follows "user:" when the text was cut before its @; "host:port" stays."""
    host, _, rest = body.partition(":")
    is_port = not rest or _PORT.match(rest) or "/" in host or host.startswith("[")
    return body if is_port else f"{host}:{MASK}"


def _mask_login(word: str) -> str:
    """`user:password@host`, as DSNs are quoted without their scheme."""
    credentials, _, host = word.rpartition("@")
    if "://" in word or _NO_HOST.match(host) or not _HOST.match(host):
        return word
    for user in _USER.finditer(credentials):
        name = user[1].lower()
        if name in _NOT_USERS or name.isdigit():
            continue
        if user.end() == len(credentials):
            break
        return f"{credentials[: user.end()]}{MASK}@{host}"
    return word
