"""Checks of option values. An error names the option, the value, and what is expected instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trueup.errors import ConfigError

MAX_SHOWN = 80


def shown(value: object) -> str:
    """A value in an error: whole or not at all, because half a URL does not show where its password ends."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"a {type(value).__name__} of {len(text)} characters"


def wrong(option: str, value: object, expected: str) -> ConfigError:
    """`option` is its name and what it belongs to: `wrong("job 'send': retry", 5, "a Retry")`."""
    return ConfigError(f"{option}={shown(value)}: {expected} is needed")


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Errors about a value, which name the value already, name the option as well."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{option}=: {error}") from None


def flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(option, value, "True or False")
    return value
