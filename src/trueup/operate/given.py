"""Ids, keys and conditions as people and programs give them.

What cannot be read is refused: a text in place of a list would be read as its characters, and an action on all jobs that match
would ignore a condition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from trueup.errors import ConfigError

MAX_DIGITS = 19  # of 2**63 - 1
MAX_ATTEMPTS = 2**31 - 1  # of PostgreSQL's integer
MAX_LIST = 10_000  # jobs, ticks or sweeps in one answer


def number_of(given: object) -> int:
    """The id of a job as a number; it may be written as one. Raises ConfigError for anything else."""
    if isinstance(given, int) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS:
        return int(given)
    raise ConfigError(f"{given!r} is not the id of a job; ids are whole numbers")


def check_limit(name: str, given: object, most: int, *, least: int = 1) -> None:
    """Raises ConfigError for what is no whole number between the bounds."""
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
        raise ConfigError(f"{name}={given!r}: from {least} to {most:,}")


def text_condition(name: str, given: object) -> str | None:
    """Raises ConfigError for what is no text, and for an empty one: as a part of a text it would be in every job."""
    if given is not None and not (isinstance(given, str) and given):
        raise ConfigError(f"{name}={given!r}: give a text, or omit it")
    return given


def arguments_condition(given: object) -> Mapping[str, Any] | None:
    """Raises ConfigError for what names no argument."""
    if given is not None and not (
        isinstance(given, Mapping) and given and all(isinstance(each, str) for each in given)
    ):
        raise ConfigError(f"arguments={given!r}: give names and values, such as {{'tenant': 'acme'}}, or omit it")
    return given


def numbers_of(given: object) -> list[int]:
    """Raises ConfigError for what is not a collection of ids."""
    return [number_of(each) for each in listed("ids", given, "[17, 18]")]


def row_keys(given: object) -> list[str]:
    """Raises ConfigError for what is not a collection of keys."""
    return [row_key(each) for each in listed("keys", given, "['17', '18']")]


def row_key(given: object) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"{given!r} is not the key of a row; keys are texts, such as '17'")
    return given


def listed(name: str, given: object, such_as: str) -> list[object]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"{name}={given!r}: give a list, such as {such_as}")
    return list(given)


def arguments_of(written: Iterable[str]) -> dict[str, Any] | None:
    """`order=7`, `customer.country=DE`: names with dots into objects, and values as JSON, or else as text.

    Raises ConfigError for one without a name or `=`, and for two that no job can meet."""
    found: dict[str, Any] = {}
    for each in written:
        name, equals, value = each.partition("=")
        *path, last = name.strip().split(".")
        if not equals or not last:
            raise ConfigError(f"argument {each!r}: write it as name=value")
        inner: Any = found
        for part in path:
            inner = inner.setdefault(part, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or inner.setdefault(last, read := _read(value.strip())) != read:
            raise ConfigError(f"argument {each!r}: another condition wants another value")
    return found or None


def _read(written: str) -> Any:
    try:
        return json.loads(written, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return written


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
