"""Checks of option values. An error names the option, the value, and what is expected instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from trueup.errors import ConfigError

MAX_SHOWN = 80


def shown(value: object) -> str:
    """A value in an error: whole or not at all, because half a URL does not show where its password ends."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"a {type(value).__name__} of {len(text)} characters"


def wrong(option: str, value: object, expected: str) -> ConfigError:
    """`option` is its name and what it belongs to: `wrong("job 'send': retry", 5, "a Retry")`."""
    return ConfigError(f"{option}={shown(value)}: {expected} is needed")


def check_known(who: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError, as a call does, that names the options `who` does not have and those that were probably meant."""
    has = sorted(known)
    unknown = sorted(set(given) - set(has))
    if unknown:
        close = {found for name in unknown for found in get_close_matches(name, has, 1, 0.8)}
        hint = f"did you mean {', '.join(sorted(close))}?" if close else f"it takes {', '.join(has)}"
        raise TypeError(f"{who} takes no {', '.join(unknown)}; {hint}")


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
