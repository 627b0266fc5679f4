"""Ids and keys as callers give them. A text where a list belongs would be read as its characters, and others' jobs be acted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trueup.errors import ConfigError

MAX_DIGITS = 19  # of 2**63 - 1


def number_of(given: object) -> int:
    """The id of a job as a number; it may be written as one. Raises ConfigError for anything else."""
    if isinstance(given, int) and not isinstance(given, bool):
        return int(given)
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS:
        return int(given)
    raise ConfigError(f"{given!r} is not the id of a job; ids are whole numbers")


def numbers_of(given: object) -> list[int]:
    """Raises ConfigError for what is not a collection of ids."""
    return [number_of(each) for each in _listed("ids", given, "[17, 18]")]


def row_keys(given: object) -> list[str]:
    """Raises ConfigError for what is not a collection of keys."""
    return [row_key(each) for each in _listed("keys", given, "['17', '18']")]


def row_key(given: object) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"{given!r} is not the key of a row; keys are texts, such as '17'")
    return given


def _listed(name: str, given: object, such_as: str) -> list[object]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"{name}={given!r}: give a list, such as {such_as}")
    return list(given)
