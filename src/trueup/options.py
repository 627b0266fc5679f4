"""Checks of option values. An error names the option, the value, and what is expected instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, isroutine, signature
from typing import Any, TypeVar, cast

from trueup.errors import ConfigError
from trueup.instead import instead

MAX_SHOWN = 80
MAX_COUNT = 1_000_000  # of a count: PostgreSQL refuses a statement with a number that its integers cannot hold
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)


def written(value: object) -> str:
    """`repr(value)`, or what kind of value it is where that raises: nested too deeply, more digits than Python writes."""
    try:
        return repr(value)
    except Exception as error:
        return f"a {type(value).__name__} whose repr raised {type(error).__name__}"


def shown(value: object) -> str:
    """A value for an error: whole or not at all, because masking cannot find the password in half a URL."""
    text = written(value)
    return text if len(text) <= MAX_SHOWN else f"a {type(value).__name__} of {len(text)} characters"


def wrong(option: str, value: object, expected: str) -> ConfigError:
    """`option` is its name and what it belongs to: `wrong("job 'send': retry", 5, "a Retry")`."""
    return ConfigError(f"{option}={shown(value)}: {expected} is needed")


def whole(option: str, value: object, most: int = MAX_COUNT) -> int:
    """A count from 1 on. Raises ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise wrong(option, value, f"a whole number from 1 to {most:,}")
    return value


def check_function(decorator: str, given: object) -> None:
    """Raises ConfigError unless `@decorator` is applied to a function, which may be bound to an instance."""
    if isroutine(given) and callable(given):
        return
    advice = f"give options by name: {decorator}(name=…)"
    if hasattr(type(given), "enqueue"):
        advice = "it is a job already; @app.cron and @app.every declare their job themselves"
    elif type(given) is classmethod:
        advice = "declare a function outside the class"
    elif callable(given):
        advice = "call it in a def of its own"
    raise ConfigError(f"{decorator} decorates a function, not {shown(given)}; {advice}")


def check_known(who: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError, as a call does, that names the options `who` does not have and what to write instead."""
    has = sorted(known)
    unknown = sorted(set(given) - set(has))
    if unknown:
        raise TypeError(f"{who} takes no {', '.join(unknown)}; {_hint(who, unknown, has)}")


def _hint(who: str, unknown: Iterable[str], has: list[str]) -> str:
    others = dict.fromkeys(written for name in unknown if (written := instead(who, name)))
    if others:
        return f"write {' and '.join(others)}"
    close = {found for name in unknown for found in get_close_matches(name, has, 1, 0.8)}
    return f"did you mean {', '.join(sorted(close))}?" if close else f"it takes {', '.join(has)}"


def advised(who: str) -> Callable[[F], F]:
    """Decorates a function so that its TypeError about an unknown option says what to write instead. Correct calls cost
    nothing."""

    def advise(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except TypeError:
                _advise(who, function, kwargs)
                raise

        return cast(F, call)

    return advise


def _advise(who: str, function: Callable[..., Any], given: Iterable[str]) -> None:
    parameters = signature(function).parameters.values()
    named = [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD and each.name != "self"]
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        # Whether it has those is checked inside.
        named = [*named, *(name for name in given if instead(who, name) is None)]
    check_known(who, given, named)


def advised_init(who: str) -> Callable[[C], C]:
    """`advised` for the constructor of a class."""

    def advise(cls: C) -> C:
        cls.__init__ = advised(who)(cls.__init__)  # type: ignore[misc]
        return cls

    return advise


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Adds the option's name to errors that name only the value."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{option}=: {error}") from None


def flag(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(option, value, "True or False")
    return value
