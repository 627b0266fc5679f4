"""Connection strings: showing them without their passwords, and refusing those that libpq would quote back at us."""

from __future__ import annotations

import re

from trueup.errors import ConfigError
from trueup.masking import MASK, mask, mask_named, mask_url

__all__ = ["MASK", "Secret", "check_dsn", "mask"]

_URL = re.compile(r"([,;])(?=(?:postgres|postgresql|redis|rediss|nats|tls|https?)://)", re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}(?![0-9A-Za-z_%])")

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*+)://(?P<body>.*+)", re.IGNORECASE | re.DOTALL)
_PAIRS = re.compile(  # as libpq reads them, but with a blank after each
    r"\s*+ (?: [a-z_]++ \s*+ = \s*+ (?: '(?:[^'\\]|\\.)*+' | (?!') (?:[^\s\\]|\\.)*+ ) (?: \s++ | $ ) )++",
    re.VERBOSE | re.ASCII,
)
_WITH_DRIVER = re.compile(r"(?P<scheme>postgres(?:ql)?)\+[a-z0-9_]++://(?P<rest>.*+)", re.DOTALL)
_OPTIONS_OF_DRIVERS = ("prepared_statement_cache_size", "prepared_statement_name_func", "async_fallback")
_SSL = {
    "ssl=true": "sslmode=require",
    "ssl=True": "sslmode=require",
    "ssl=false": "sslmode=disable",
    "ssl=False": "sslmode=disable",
}
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BAD_PERCENT = re.compile(r"%(?![0-9a-f]{2})|%00", re.IGNORECASE)


def libpq_url(text: str) -> str:
    """The URL as libpq reads it, of one that names a driver: `postgresql+asyncpg://…`, as SQLAlchemy and others write it.

    Options of the driver go with it; asyncpg's `ssl=` is libpq's `sslmode=`. Anything else is returned as it is.
    """
    url = _WITH_DRIVER.fullmatch(text)
    if url is None:
        return text
    place, mark, query = url["rest"].partition("?")
    options = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in _OPTIONS_OF_DRIVERS]
    options = [
        _SSL.get(pair, pair.replace("ssl=", "sslmode=", 1) if pair.startswith("ssl=") else pair) for pair in options
    ]
    return f"{url['scheme']}://{place}{mark if options else ''}{'&'.join(options)}"


def check_dsn(text: str) -> None:
    """Raise ConfigError unless this is a PostgreSQL URL or a key/value DSN whose password libpq reads whole.

    libpq's own errors quote the place where it stumbled, which is often a piece of the password; these never do.
    """
    if _UNUSABLE.search(text):
        raise ConfigError("has a line break, another control character or broken UTF-8 in it")
    url = _URL.fullmatch(text)
    if url is None:
        if _PAIRS.fullmatch(text) is None:
            raise ConfigError("is neither a PostgreSQL URL nor key=value pairs")
        return
    if url["scheme"] not in ("postgresql", "postgres"):
        raise ConfigError(f"is a {url['scheme']} URL, not a postgresql one")
    if " " in url["body"] or _BAD_PERCENT.search(url["body"]):
        raise ConfigError("has a blank or a % in it that must be percent-encoded (%20, %25)")
    if re.search("[@/]", url["body"].rpartition("@")[0]):
        raise ConfigError("has an @ or / in its user, password or options that must be percent-encoded (%40, %2F)")


class Secret:
    """A connection string that shows itself without its password. Only `reveal()` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        if _URL.fullmatch(self._text):
            return mask_url(mask_named(self._text))
        # What cannot be read as a DSN may be the password itself.
        return mask(self._text) if _PAIRS.fullmatch(self._text) else MASK

    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)
