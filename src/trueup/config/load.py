"""Loads settings from their sources, and reports errors in them."""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from trueup.config.settings import DEFAULT, PREFIX, SETTINGS, Settings
from trueup.dsn import mask
from trueup.durations import format_duration
from trueup.errors import ConfigError
from trueup.instead import instead

NOT_SETTINGS = frozenset(
    {
        *("TRUEUP_CLOCK", "TRUEUP_FAULT", "TRUEUP_HISTORY"),  # read by tests of trueup itself
        "TRUEUP_TEST_DATABASE_URL",  # read by the pytest fixtures
        # Read by the dashboard: secrets that `config` never shows.
        *("TRUEUP_DASHBOARD_TOKEN", "TRUEUP_DASHBOARD_VIEWER_TOKEN"),
    }
)


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
    options: bool = False,
) -> Settings:
    """The settings in force: `overrides` that are not None, then `environ`, then the file, then the defaults.

    The file is `trueup.toml`, or else `pyproject.toml`, in the nearest of `directory` (default: the working directory) and
    its parents that has either. `DATABASE_URL` counts as a variable for `database_url`, after `TRUEUP_DATABASE_URL`.
    A relative `data_dir` is taken from where it was written: the file's directory, or else `directory`. With `options` the
    overrides were given on the command line, and are named as they are there.

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
        _from_arguments(overrides or {}, directory, options),
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


def _from_arguments(overrides: Mapping[str, object], directory: Path, options: bool) -> Iterator[_Given]:
    for name, value in overrides.items():
        if value is not None or name not in SETTINGS:
            source = f"--{name.replace('_', '-')}" if options else f"argument {name}"
            yield _Given(name, value, source, directory)


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
    if table and path.parent != directory and (stranger := _whose(path)) is not None:
        problems.append(
            f"{path} is not used: {stranger}. Settings found above the working directory must be yours or root's; "
            f"copy the file to {directory}, or change its owner"
        )
        return
    prefix = "tool.trueup." if path.name == "pyproject.toml" else ""
    for key, value in table.items():
        yield _Given(key, value, f"{prefix}{key} in {path}", path.parent)


def _find_file(directory: Path) -> Path | None:
    places = (place / name for place in (directory, *directory.parents) for name in ("trueup.toml", "pyproject.toml"))
    return next(filter(_is_there, places), None)


def _whose(path: Path) -> str | None:
    """How another user can change this file; None when only this user or root can. Symbolic links count, too."""
    if not hasattr(os, "getuid"):
        return None
    for found in (path.lstat(), path.stat()):
        if found.st_uid not in (0, os.getuid()):
            return f"it belongs to user {found.st_uid}"
    return "every user can write to it" if path.stat().st_mode & stat.S_IWOTH else None


def _is_there(path: Path) -> bool:
    """Whether anything has this name. A link to nothing, or the directory that Docker makes for a bind mount of a file that does
    not exist, must not leave a process with the settings of a parent directory, or with none."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # also a parent that this user may not enter
        return False
    return True


@lru_cache(maxsize=1)  # a process with many Apps reads the same file each time
def _parse(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def _read_file(path: Path) -> dict[str, object]:
    if not path.is_file():  # reading a pipe or a device might never end
        raise ConfigError(f"{path} is not a file")
    try:
        table = _parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except RecursionError:
        raise ConfigError(f"{path} cannot be read: it is nested too deeply") from None
    if path.name == "pyproject.toml" and "trueup" in table:
        raise ConfigError(f"[trueup] in {path} is not read; write [tool.trueup]")
    for key in ("tool", "trueup") if path.name == "pyproject.toml" else ():
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key} in {path} is not a table")
    return table


def _unknown(found: _Given) -> str:
    if isinstance(found.value, Mapping) and found.name in ("tool", "trueup"):
        return f"{found.source}: a trueup.toml holds settings without a table above them; [tool.trueup] is for pyproject.toml"
    if written := instead("an App", found.name):
        return f"{found.source} is not a setting; write {written}"
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
