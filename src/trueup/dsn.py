"""Connection strings: showing them without their passwords, and refusing those that libpq would quote in its errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

from trueup.building import BUILDING
from trueup.errors import ConfigError
from trueup.masking import MASK, mask, mask_named, mask_url

__all__ = ["MASK", "Secret", "check_dsn", "mask"]

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*+)://(?P<body>.*+)", re.IGNORECASE | re.DOTALL)
_PAIRS = re.compile(  # as libpq reads them, but each with a blank after it
    r"\s*+ (?: [a-z_]++ \s*+ = \s*+ (?: '(?:[^'\\]|\\.)*+' | (?!') (?:[^\s\\]|\\.)*+ ) (?: \s++ | $ ) )++",
    re.VERBOSE | re.ASCII,
)
_WITH_DRIVER = re.compile(r"(?P<scheme>postgres(?:ql)?)\+[a-z0-9_]++://(?P<rest>.*+)", re.DOTALL)
# What SQLAlchemy hands to asyncpg from a URL: how that driver caches and waits, which says nothing about the server.
_OPTIONS_OF_DRIVERS = frozenset(
    [
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "async_fallback",
        "statement_cache_size",
        "max_cached_statement_lifetime",
        "max_cacheable_statement_size",
        "command_timeout",
    ]
)
_RENAMED = {"ssl": "sslmode", "timeout": "connect_timeout"}
_SSL = {"true": "require", "false": "disable"}
_OPTION_NAME = re.compile(r"[a-z][a-z_]{2,40}")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BAD_PERCENT = re.compile(r"%(?![0-9a-f]{2})|%00", re.IGNORECASE)


def libpq_url(text: str) -> str:
    """The URL as libpq reads it, of one that names a driver: `postgresql+asyncpg://…`, as SQLAlchemy and others write it.

    Options that only concern the driver are left out, and those that libpq has another name for are renamed: asyncpg's `ssl=` is
    `sslmode=`. Anything else is returned as it is, for `check_dsn` to judge.
    """
    url = _WITH_DRIVER.fullmatch(text)
    if url is None:
        return text
    place, _, query = url["rest"].partition("?")
    options = [
        _libpq_option(pair) for pair in query.split("&") if pair and pair.partition("=")[0] not in _OPTIONS_OF_DRIVERS
    ]
    return f"{url['scheme']}://{place}{'?' if options else ''}{'&'.join(options)}"


def with_search_path(text: str, schemas: Sequence[str]) -> str:
    """The DSN of the same server, where names without a schema are looked up in these; a search path in the DSN itself wins."""
    with BUILDING:
        from psycopg import ProgrammingError  # only here: most applications set no path
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    try:
        path, given = f"-csearch_path={','.join(schemas)}", conninfo_to_dict(text).get("options")
    except ProgrammingError:
        return text  # its error is raised where it is used
    if _URL.fullmatch(text) and given is None:
        return f"{text}{'&' if '?' in text else '?'}options={quote(path)}"
    return make_conninfo(text, options=f"{path} {given or ''}".strip())


def _libpq_option(pair: str) -> str:
    name, equals, value = pair.partition("=")
    if name == "ssl":
        value = _SSL.get(value.lower(), value)
    elif name == "timeout":
        value = value.partition(".")[0]  # libpq counts whole seconds
    return f"{_RENAMED.get(name, name)}{equals}{value}"


def check_dsn(text: str) -> None:
    """Raise ConfigError unless this is a PostgreSQL URL or a key/value DSN whose password libpq reads whole.

    libpq's own errors quote the place where it stumbled, which is often a piece of the password; these never do.
    """
    if _UNUSABLE.search(text):
        raise ConfigError("contains a line break, another control character or invalid UTF-8")
    url = _URL.fullmatch(text)
    if url is None:
        if _PAIRS.fullmatch(text) is None:
            raise ConfigError("is neither a PostgreSQL URL nor a list of key=value pairs")
        return
    if url["scheme"] not in ("postgresql", "postgres"):
        raise ConfigError(f"is a {url['scheme']} URL, not a postgresql one")
    if " " in url["body"] or _BAD_PERCENT.search(url["body"]):
        raise ConfigError("contains a space or a % that must be percent-encoded (%20, %25)")
    if re.search("[@/]", url["body"].rpartition("@")[0]):
        raise ConfigError("contains an @ or / in its user, password or options that must be percent-encoded (%40, %2F)")
    _check_options(url["body"].rpartition("@")[2].partition("?")[2])


def _check_options(query: str) -> None:
    names = [pair.partition("=")[0] for pair in query.split("&") if pair]
    if not names:
        return
    with BUILDING:
        from psycopg.pq import Conninfo  # only here: most URLs have no options
    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}  # libpq takes JDBC's ssl=true
    unknown = [name for name in names if name not in known]
    if unknown:
        # Beside a password an unknown name may be a piece of it, after a raw &.
        plain = not any("password" in name for name in names) and all(_OPTION_NAME.fullmatch(name) for name in unknown)
        shown = f": {', '.join(unknown)}" if plain else ""
        raise ConfigError(f"has an option that PostgreSQL's libpq does not know{shown}; remove it from the URL")


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
