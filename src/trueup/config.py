# ruff: noqa: RUF009 - setting() makes a dataclass field, it is not a default shared by accident
"""Settings: what they are, where they come from, and what is wrong with them.

An explicit argument beats a `TRUEUP_*` variable, which beats a key of `trueup.toml` or of `[tool.trueup]` in
`pyproject.toml`, which beats the default. The class `Settings` is the table of all of them: name, default, kind of value,
meaning. Variables, checks, `describe` and the reference page follow from it, which is why no settings library is used.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from trueup.dsn import Secret, check_dsn, mask
from trueup.durations import format_duration, parse_duration
from trueup.errors import ConfigError

T = TypeVar("T")

PREFIX = "TRUEUP_"
NOT_SETTINGS = frozenset({"TRUEUP_CLOCK", "TRUEUP_FAULT", "TRUEUP_HISTORY"})  # read by tests of trueup itself
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of value. `read` takes what a person wrote, or raises ConfigError with that and what would be right."""

    read: Callable[[object], T]
    show: Callable[[T], str] = str


def _wrong(value: object, expected: str) -> ConfigError:
    # Cut after masking: half a URL does not show where its password ends.
    written = repr(mask(value)[:200]) if isinstance(value, str) else mask(repr(value))[:200]
    return ConfigError(f"{written} is not {expected}")


def _text(expected: str, fits: Callable[[str], object]) -> Kind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not fits(value):
            raise _wrong(value, expected)
        return value

    return Kind(read)


def _choice(*words: str) -> Kind[str]:
    def read(value: object) -> str:
        word = str(value).lower()
        if word not in words:
            raise _wrong(value, f"one of {', '.join(words)}")
        return word

    return Kind(read)


def _whole(low: int, high: int) -> Kind[int]:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _wrong(value, f"a whole number from {low} to {high}")
        return value

    return Kind(read)


_SIZE_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


def _size(low: int, high: int) -> Kind[int]:
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


def _duration(low: str, high: str) -> Kind[timedelta]:
    lowest, highest = parse_duration(low), parse_duration(high)

    def read(value: object) -> timedelta:
        duration = parse_duration(value)
        if not lowest <= duration <= highest:
            written = format_duration(value) if isinstance(value, timedelta) else value
            raise _wrong(written, f"a duration from {low} to {high}")
        return duration

    return Kind(read, format_duration)


_WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _read_bool(value: object) -> bool:
    meant = _WORDS.get(str(value).lower()) if isinstance(value, bool | int | str) else None
    if meant is None:
        raise _wrong(value, f"one of {', '.join(_WORDS)}")
    return meant


def _read_database_url(value: object) -> Secret:
    secret = value if isinstance(value, Secret) else Secret(value if isinstance(value, str) else "")
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
            f"{str(secret)!r} is not a Redis URL; write it like redis://host:6379/0, or several with commas between"
        )
    return secret


def redis_urls(secret: Secret) -> list[str]:
    """The servers that `redis_url` names."""
    return _NEXT_REDIS_URL.split(secret.reveal())


def _read_path(value: object) -> Path:
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise _wrong(value, "a directory")
    return Path(value)


_QUEUE_NAME = _text("a queue's name", re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}").fullmatch)
_QUEUE_CONCURRENCY = _whole(1, 10_000)


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
        # The whole list rather than the bad item: a piece of a URL written here by mistake could not be masked.
        raise _wrong(value, 'a list of different queues; write it like "default,mail=5" (concurrency from 1 to 10000)')
    return MappingProxyType(queues)


def _name_and_concurrency(item: object) -> tuple[object, str | None]:
    if not isinstance(item, str):
        return item, None
    name, given, concurrency = item.strip().partition("=")
    return name, concurrency if given else None


def _show_queues(queues: Mapping[str, int | None]) -> str:
    return ",".join(name if concurrency is None else f"{name}={concurrency}" for name, concurrency in queues.items())


_BOOL = Kind(_read_bool, lambda value: "true" if value else "false")
_DATABASE_URL = Kind(_read_database_url)
# 41 characters: names of indexes and partitions stay below PostgreSQL's 63 when they are built from it.
_SCHEMA = _text(
    "a schema name: up to 41 lower-case letters, digits and _, not starting with a digit or pg_",
    re.compile("(?!pg_|information_schema$)[a-z_][a-z0-9_]{0,40}").fullmatch,
)
_REDIS_URLS = Kind(_read_redis_url, lambda secret: ",".join(str(Secret(url)) for url in redis_urls(secret)))
_PATH = Kind(_read_path)
_QUEUE_LIST = Kind(_read_queues, _show_queues)
_APP = _text(
    'the place of an App; write it like "package.module:app"',
    lambda text: text.count(":") == 1 and all(part.isidentifier() for part in re.split("[.:]", text)),
)
_HOST = _text("a host's name or address", re.compile(r"[A-Za-z0-9._:%-]{1,253}").fullmatch)
_RELEASE = _text(
    "a text of at most 100 printable characters",
    lambda text: len(text) <= 100 and text.isprintable() and not text.isspace(),
)


def setting(default: str | None, kind: Kind[T], meaning: str) -> T:
    """A field of Settings. The default is written as a person would; None means that nothing is set."""
    value = None if default is None else kind.read(default)
    return cast(T, field(default=value, metadata={"default": default, "kind": kind, "meaning": meaning}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of a process. `load_settings` makes it, and is what checks that the values go together."""

    database_url: Secret | None = setting(
        None, _DATABASE_URL, "the PostgreSQL to use; none: an embedded one in data_dir"
    )
    schema: str = setting("trueup", _SCHEMA, "the schema that holds trueup's tables")
    data_dir: Path = setting(".trueup", _PATH, "where the embedded PostgreSQL keeps its data")
    redis_url: Secret | None = setting(
        None, _REDIS_URLS, "the Redis for leases with backend='redis'; three or more, with commas between, are a quorum"
    )
    redis_unavailable: str = setting(
        "closed", _choice("closed", "open"), "whether leases in a Redis that is away go to nobody or to everybody"
    )
    app: str | None = setting(None, _APP, "the App the command line works with, as module:attribute")
    queues: Mapping[str, int | None] | None = setting(
        None, _QUEUE_LIST, "the queues a worker serves, each with its own concurrency if given; none: those of its jobs"
    )
    concurrency: int = setting("50", _whole(1, 10_000), "how many jobs a worker runs at a time")
    prefetch: int = setting("1000", _whole(0, 100_000), "the most jobs a worker claims ahead")
    lease_for: timedelta = setting("30s", _duration("1s", "1d"), "how long a claim holds unless it is renewed")
    renew_every: timedelta = setting(
        "10s", _duration("100ms", "12h"), "how often claims are renewed; unless set, a third of lease_for"
    )
    drain_for: timedelta = setting("25s", _duration("0s", "1d"), "how long a stopping worker waits for running jobs")
    poll_every: timedelta = setting("2s", _duration("50ms", "5m"), "the longest idle poll while notifications arrive")
    poll_without_listen: timedelta = setting("500ms", _duration("10ms", "5m"), "the longest idle poll without them")
    listen: bool = setting("true", _BOOL, "wake up on notifications; needs a connection outside a transaction pooler")
    rescue_every: timedelta = setting("10s", _duration("100ms", "1h"), "how often expired claims are looked for")
    prune_every: timedelta = setting("10m", _duration("1s", "1d"), "how often old history is dropped")
    gather_for: timedelta = setting("2ms", _duration("0s", "1s"), "how long finished jobs wait to be written together")
    aging: timedelta = setting("60s", _duration("1ms", "3650d"), "the head start that one point of priority is worth")
    payload_limit: int = setting("1MiB", _size(1 << 10, 100 << 20), "the largest arguments of a job, as JSON")
    result_limit: int = setting("256KiB", _size(1 << 10, 100 << 20), "the largest result of a job, as JSON")
    keep_done: timedelta = setting("24h", _duration("1s", "36500d"), "how long done jobs stay in the history")
    keep_cancelled: timedelta = setting("24h", _duration("1s", "36500d"), "how long cancelled jobs stay in the history")
    keep_dead: timedelta = setting("30d", _duration("1s", "36500d"), "how long dead jobs can be looked at and revived")
    keep_ticks: timedelta = setting("90d", _duration("1s", "36500d"), "how long the ledger of ticks is kept")
    keep_sweeps: timedelta = setting("30d", _duration("1s", "36500d"), "how long the record of sweeps is kept")
    reconcile: bool = setting("true", _BOOL, "whether workers sweep users' tables; off for workers that only run jobs")
    pool_size: int = setting("10", _whole(1, 1000), "the most pooled connections of a process")
    connect_timeout: timedelta = setting("5s", _duration("1s", "5m"), "how long a connection may take to be made")
    statement_timeout: timedelta = setting(
        "30s", _duration("100ms", "1d"), "how long one of trueup's statements may take"
    )
    prepare: bool = setting(
        "false", _BOOL, "prepare statements on the server: faster, but not behind a pooler in transaction mode"
    )
    blocked_after: timedelta = setting(
        "1s", _duration("10ms", "1h"), "when a handler that blocks the event loop is named"
    )
    log_format: str = setting(
        "auto", _choice("auto", "json", "console"), "how log lines look; auto: console on a terminal"
    )
    log_level: str = setting(
        "info", _choice("debug", "info", "warning", "error", "critical"), "the least that is logged"
    )
    metrics_port: int | None = setting(
        None, _whole(1, 65_535), "the port where a worker serves its metrics for Prometheus; none: it does not"
    )
    metrics_host: str = setting(
        "127.0.0.1", _HOST, "the address it serves them at; anybody who reaches it can read them"
    )
    release: str | None = setting(None, _RELEASE, "the release of your application, shown to people")
    worker_name: str | None = setting(
        None, _RELEASE, "how a worker is called in lease columns of your tables; none: its host and process id"
    )

    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


class Setting(NamedTuple):
    """One row of the table: what the reference page shows, and how its value is read."""

    name: str
    variable: str
    default: str | None
    meaning: str
    kind: Kind[Any]


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        each.name: Setting(
            each.name,
            PREFIX + each.name.upper(),
            each.metadata["default"],
            each.metadata["meaning"],
            each.metadata["kind"],
        )
        for each in dataclasses.fields(Settings)
        if each.metadata
    }
)


class Described(NamedTuple):
    """A setting as it is now. `source` says where the value was found, `value` is None when nothing is set."""

    name: str
    value: str | None
    source: str
    variable: str


def describe(settings: Settings) -> list[Described]:
    """Every setting with its value as text (passwords masked) and where it came from, in the order of the table."""

    def row(setting: Setting) -> Described:
        value = getattr(settings, setting.name)
        shown = None if value is None else setting.kind.show(value)
        return Described(setting.name, shown, settings.sources.get(setting.name, DEFAULT), setting.variable)

    return [row(setting) for setting in SETTINGS.values()]


class _Given(NamedTuple):
    name: str
    value: object
    source: str
    directory: Path


def load_settings(
    *,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """The settings in force: `overrides` that are not None, then `environ`, then the file, then the defaults.

    The file is `trueup.toml`, or else `pyproject.toml`, in the nearest of `directory` (default: the working directory) and
    its parents that has either. `DATABASE_URL` counts as a variable for `database_url`, after `TRUEUP_DATABASE_URL`.
    A relative `data_dir` is taken from where it was written: the file's directory, or else `directory`.

    Raises one ConfigError with a line for every unknown name and every bad value, each naming its source.
    """
    directory = (directory or Path.cwd()).absolute()
    problems: list[str] = []
    given: dict[str, _Given] = {}
    # Lowest precedence first: later ones replace earlier ones.
    for found in chain(
        _from_defaults(directory),
        _from_file(directory, problems),
        _from_environment(os.environ if environ is None else environ, directory),
        _from_arguments(overrides or {}, directory),
    ):
        if found.name in SETTINGS:
            given[found.name] = found
        else:
            problems.append(_unknown(found))
    values = _read_values(given, problems)
    if problems:
        # Masked again as a whole: a URL may have been written into any of the settings.
        raise ConfigError("\n".join(mask(problem) for problem in problems))
    sources = MappingProxyType({name: found.source for name, found in given.items()})
    return Settings(**values, sources=sources)


def _from_defaults(directory: Path) -> Iterator[_Given]:
    for setting in SETTINGS.values():
        if setting.default is not None:
            yield _Given(setting.name, setting.default, DEFAULT, directory)


def _from_arguments(overrides: Mapping[str, object], directory: Path) -> Iterator[_Given]:
    for name, value in overrides.items():
        if value is not None or name not in SETTINGS:
            yield _Given(name, value, f"argument {name}", directory)


def _from_environment(environ: Mapping[str, str], directory: Path) -> Iterator[_Given]:
    if "DATABASE_URL" in environ:
        yield _Given("database_url", environ["DATABASE_URL"], "DATABASE_URL", directory)
    # Kubernetes puts NAME_SERVICE_HOST, NAME_PORT and more into every pod for each Service, and one may be named trueup-….
    services = [name.removesuffix("SERVICE_HOST") for name in environ if name.endswith("_SERVICE_HOST")]
    not_ours = tuple(service + part for service in services for part in ("SERVICE_", "PORT"))
    for variable, value in environ.items():
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            name = variable.removeprefix(PREFIX).lower() if variable.isupper() else variable
            # A Service trueup-metrics makes TRUEUP_METRICS_PORT, as tcp://…; a person may have written another value there.
            if not variable.startswith(not_ours) or (name in SETTINGS and "://" not in value):
                yield _Given(name, value, variable, directory)


def _from_file(directory: Path, problems: list[str]) -> Iterator[_Given]:
    path = _find_file(directory)
    if path is None:
        return
    try:
        table = _read_file(path)
    except ConfigError as error:
        problems.append(str(error))
        return
    prefix = "tool.trueup." if path.name == "pyproject.toml" else ""
    for key, value in table.items():
        yield _Given(key, value, f"{prefix}{key} in {path}", path.parent)


def _find_file(directory: Path) -> Path | None:
    places = (place / name for place in (directory, *directory.parents) for name in ("trueup.toml", "pyproject.toml"))
    return next((place for place in places if _is_file(place)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except PermissionError:  # a parent that this user may not enter
        return False


def _read_file(path: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for key in ("tool", "trueup") if path.name == "pyproject.toml" else ():
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key} in {path} is not a table")
    return table


def _unknown(found: _Given) -> str:
    nearest = difflib.get_close_matches(found.name.lower().removeprefix(PREFIX.lower()), SETTINGS, n=1)
    hint = "".join(f"; did you mean {name} ({SETTINGS[name].variable})?" for name in nearest)
    return f"{found.source} is not a setting{hint}"


def _read_values(given: Mapping[str, _Given], problems: list[str]) -> dict[str, Any]:
    """The values, read and fitted to one another; what cannot be read is left out and added to `problems`."""
    values: dict[str, Any] = {}
    for name, found in given.items():
        if found.value == "":
            problems.append(f"{found.source} is empty; remove it or give it a value")
            continue
        try:
            values[name] = SETTINGS[name].kind.read(found.value)
        except ConfigError as error:
            problems.append(f"{found.source}: {error}")
    if "data_dir" in values:
        values["data_dir"] = given["data_dir"].directory / values["data_dir"]
    if "lease_for" in values and given["renew_every"].source == DEFAULT:
        values["renew_every"] = values["lease_for"] / 3
    if "lease_for" in values and "renew_every" in values and values["lease_for"] <= 2 * values["renew_every"]:
        lease_for, renew_every = (
            f"{name} ({format_duration(values[name])}, {given[name].source})" for name in ("lease_for", "renew_every")
        )
        problems.append(f"{lease_for} must be more than twice {renew_every}, or one late renewal loses every claim")
    return values
