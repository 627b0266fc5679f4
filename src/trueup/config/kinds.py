"""The kinds of value that settings have: how each is read from what a person wrote, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from trueup.dsn import Secret, check_dsn, libpq_url, mask
from trueup.durations import format_duration, parse_duration
from trueup.errors import ConfigError
from trueup.options import written

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value. `read` converts what a person wrote, or raises ConfigError with the value and what is expected."""

    read: Callable[[object], T]
    show: Callable[[T], str] = str


def _wrong(value: object, expected: str) -> ConfigError:
    # Cut after masking: half a URL does not show where its password ends.
    shown = repr(mask(value)[:200]) if isinstance(value, str) else mask(written(value))[:200]
    return ConfigError(f"{shown} is not {expected}")


def text(expected: str, fits: Callable[[str], object]) -> Kind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not fits(value):
            raise _wrong(value, expected)
        return value

    return Kind(read)


def _word(value: object) -> str:
    return (value if isinstance(value, str) else written(value)).lower()


def choice(*words: str) -> Kind[str]:
    def read(value: object) -> str:
        word = _word(value)
        if word not in words:
            raise _wrong(value, f"one of {', '.join(words)}")
        return word

    return Kind(read)


def whole(low: int, high: int) -> Kind[int]:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _wrong(value, f"a whole number from {low} to {high}")
        return value

    return Kind(read)


_SIZE_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


def size(low: int, high: int) -> Kind[int]:
    expected = f'a size from {_format_size(low)} to {_format_size(high)}; write it like "512KiB" or "1MiB", or in bytes'

    def read(value: object) -> int:
        match = re.fullmatch("([0-9]{1,18})(GiB|MiB|KiB|B)?", value) if isinstance(value, str) else None
        size = int(match[1]) * _SIZE_UNITS[match[2] or "B"] if match else value
        if not isinstance(size, int) or isinstance(size, bool) or not low <= size <= high:
            raise _wrong(value, expected)
        return size

    return Kind(read, _format_size)


def _format_size(size: int) -> str:
    unit = next(unit for unit, count in _SIZE_UNITS.items() if size % count == 0)
    return f"{size // _SIZE_UNITS[unit]}{unit}"


def duration(low: str, high: str) -> Kind[timedelta]:
    lowest, highest = parse_duration(low), parse_duration(high)

    def read(value: object) -> timedelta:
        duration = parse_duration(value)
        if not lowest <= duration <= highest:
            shown = format_duration(value) if isinstance(value, timedelta) else value
            raise _wrong(shown, f"a duration from {low} to {high}")
        return duration

    return Kind(read, format_duration)


_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _read_bool(value: object) -> bool:
    meant = _WORDS.get(_word(value))
    if meant is None:
        raise _wrong(value, f"one of {', '.join(_WORDS)}")
    return meant


def _read_database_url(value: object) -> Secret:
    secret = value if isinstance(value, Secret) else Secret(value if isinstance(value, str) else "")
    secret = Secret(libpq_url(secret.reveal()))
    try:
        check_dsn(secret.reveal())
    except ConfigError as error:
        raise ConfigError(f"{str(secret)!r} {error}; write it like postgresql://user@host:5432/name") from None
    return secret


_REDIS_URL = re.compile(r"(?:rediss?|unix)://[^\s\x00-\x1f\x7f]+")
_NEXT_REDIS_URL = re.compile(r",(?=(?:rediss?|unix)://)")  # a comma elsewhere is part of a password


def _read_redis_url(value: object) -> Secret:
    secret = value if isinstance(value, Secret) else Secret(value if isinstance(value, str) else "")
    if not all(_REDIS_URL.fullmatch(url) for url in redis_urls(secret)):
        raise ConfigError(
            f"{str(secret)!r} is not a Redis URL; write it like redis://host:6379/0, or several separated by commas"
        )
    return secret


def redis_urls(secret: Secret) -> list[str]:
    """The servers that `redis_url` names."""
    return _NEXT_REDIS_URL.split(secret.reveal())


_HTTP_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f]+")


def _read_http_url(value: object) -> Secret:
    """A secret: anyone who knows the URL of such a hook can post to it."""
    secret = value if isinstance(value, Secret) else Secret(value if isinstance(value, str) else "")
    if not _HTTP_URL.fullmatch(secret.reveal()):
        raise ConfigError("this is not a URL to post to; write it like https://host/path")
    return secret


def _show_http_url(secret: Secret) -> str:
    """Only the host: the path is the secret."""
    return re.sub(r"^(https?://)(?:[^/@]*@)?([^/?#]*).*$", r"\1\2/…", secret.reveal(), flags=re.DOTALL)


_ADDRESS = re.compile(r"[A-Za-z0-9._:/*-]{1,253}")


def _read_list(value: object, item: re.Pattern[str], expected: str) -> tuple[str, ...]:
    """From a text with commas between the items, or a list of them."""
    given = value.split(",") if isinstance(value, str) else () if isinstance(value, Mapping) else value
    items = [each.strip() if isinstance(each, str) else each for each in given] if isinstance(given, Iterable) else []
    if not items or not all(isinstance(each, str) and item.fullmatch(each) for each in items):
        raise _wrong(value, expected)
    return tuple(items)


def _read_names(value: object) -> tuple[str, ...]:
    expected = 'networks, addresses or hosts separated by commas; write it like "10.0.0.0/8,hooks.internal"'
    return _read_list(value, _ADDRESS, expected)


def _read_path(value: object) -> Path:
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise _wrong(value, "a directory")
    return Path(value)


CHECKS = (
    *("workers", "ticks", "schedules", "kinds", "stranded_jobs", "refused_jobs", "sweeps", "overdue_rows"),
    *("overdue_jobs", "breakers", "quarantine", "dead_letters"),
)
# Measured in seconds; the others are counts.
AGES = ("workers", "ticks", "kinds", "stranded_jobs", "overdue_rows", "overdue_jobs")


def _read_limits(value: object) -> Mapping[str, float | None]:
    """From "dead_letters=100,overdue_jobs=6h,quarantine=off", or a mapping from name to number, duration or "off"."""
    if isinstance(value, str):
        items = [tuple(part.strip() for part in item.partition("=")[::2]) for item in value.split(",") if item.strip()]
    else:
        items = list(value.items()) if isinstance(value, Mapping) else [("", "")]
    limits: dict[str, float | None] = {}
    for name, limit in items:
        if name not in CHECKS or name in limits:
            raise _wrong(
                value,
                f'a limit for some checks; write it like "overdue_jobs=6h,quarantine=off"; there is {", ".join(CHECKS)}',
            )
        limits[name] = _read_limit(name, limit)
    return MappingProxyType(limits)


def _read_limit(name: str, limit: object) -> float | None:
    if limit is None or limit == "off":
        return None
    if name in AGES:
        return parse_duration(limit).total_seconds()
    number = re.fullmatch("[0-9]{1,9}", _word(limit))
    if number is None:
        raise _wrong(limit, f"a limit of {name}; write a whole number, or off")
    return float(number[0])


def _show_limits(limits: Mapping[str, float | None]) -> str:
    return ",".join(f"{name}={_show_limit(name, limit)}" for name, limit in limits.items())


def _show_limit(name: str, limit: float | None) -> str:
    if limit is None:
        return "off"
    return format_duration(timedelta(seconds=limit)) if name in AGES else f"{limit:g}"


_QUEUE_NAME = text("a queue's name", re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}").fullmatch)
_QUEUE_CONCURRENCY = whole(1, 10_000)


def _read_queues(value: object) -> Mapping[str, int | None]:
    """From "default,mail=5", a list of such items, or a mapping from name to concurrency (None: not limited)."""
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, Iterable):
        items = [_name_and_concurrency(item) for item in (value.split(",") if isinstance(value, str) else value)]
    else:
        items = []
    try:
        queues = {
            _QUEUE_NAME.read(name): None if concurrency is None else _QUEUE_CONCURRENCY.read(concurrency)
            for name, concurrency in items
        }
    except ConfigError:
        queues = {}
    if not queues or len(queues) < len(items):
        # Quotes the whole list instead of the bad item: a piece of a URL written here by mistake could not be masked.
        raise _wrong(value, 'a list of different queues; write it like "default,mail=5" (concurrency from 1 to 10000)')
    return MappingProxyType(queues)


def _name_and_concurrency(item: object) -> tuple[object, str | None]:
    if not isinstance(item, str):
        return item, None
    name, given, concurrency = item.strip().partition("=")
    return name, concurrency if given else None


def _show_queues(queues: Mapping[str, int | None]) -> str:
    return ",".join(name if concurrency is None else f"{name}={concurrency}" for name, concurrency in queues.items())


AS_THE_ROLE_HAS_IT = "role"
_SCHEMA = re.compile("(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,40}")
_MODULES = re.compile(r"(?:[^\W\d]\w*)(?:\.(?:[^\W\d]\w*|\*{1,2}))*")


def _read_modules(value: object) -> tuple[str, ...]:
    """From "shop.jobs,shop.*.tasks" or a list of such names."""
    return _read_list(value, _MODULES, 'a list of modules; write it like "shop.jobs", "shop.*" or "shop.*.jobs"')


def _read_search_path(value: object) -> tuple[str, ...]:
    """From "shop,public" or a list of such names. Empty: the role's own search path."""
    if value == AS_THE_ROLE_HAS_IT:
        return ()
    return _read_list(value, _SCHEMA, 'a list of schemas in lower case; write it like "shop" or "shop,public"')


def _read_app(value: object) -> str:
    if isinstance(value, str):
        if _is_place(value) and ".py:" not in value:
            return value
        # As people write it: the path of a file, a call of a factory, without the App's name, with a dot before it.
        module, _, attribute = value.removesuffix("()").partition(":")
        module = re.sub(r"^\.[/\\]|\.py$", "", module).replace("/", ".").replace("\\", ".")
        meant = [f"{module}:{attribute or 'app'}"]
        if "." in value and value == module:
            meant.insert(0, ":".join(module.rsplit(".", 1)))
        if all(map(_is_place, meant)):
            said = " or ".join(f'"{each}"' for each in meant)
            raise ConfigError(f"{value!r} is not the location of an App; did you mean {said}?")
    raise _wrong(value, 'the location of an App; write it like "package.module:app"')


def _is_place(text: str) -> bool:
    return text.count(":") == 1 and all(part.isidentifier() for part in re.split("[.:]", text))


BOOL = Kind(_read_bool, lambda value: "true" if value else "false")
DATABASE_URL = Kind(_read_database_url)
# 41 characters: names of indexes and partitions stay below PostgreSQL's 63 when they are built from it.
SCHEMA = text(
    "a schema name: up to 41 lower-case letters, digits and _, not starting with a digit or pg_",
    _SCHEMA.fullmatch,
)
SEARCH_PATH = Kind(_read_search_path, lambda schemas: ",".join(schemas) or AS_THE_ROLE_HAS_IT)
REDIS_URLS = Kind(_read_redis_url, lambda secret: ",".join(str(Secret(url)) for url in redis_urls(secret)))
PATH = Kind(_read_path)
MODULES = Kind(_read_modules, ",".join)
QUEUE_LIST = Kind(_read_queues, _show_queues)
HTTP_URL = Kind(_read_http_url, _show_http_url)
NAMES = Kind(_read_names, ",".join)
CHECK_LIMITS = Kind(_read_limits, _show_limits)
APP = Kind(_read_app)
HOST = text("a host's name or address", re.compile(r"[A-Za-z0-9._:%-]{1,253}").fullmatch)
RELEASE = text(
    "a text of at most 100 printable characters",
    lambda text: len(text) <= 100 and text.isprintable() and not text.isspace(),
)
