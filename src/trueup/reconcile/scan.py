"""A declared scan over something that is not a table: a generator of items, and a handler for each item."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar, cast

from trueup.building import BUILDING
from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError, InvalidArguments
from trueup.jobs.job import HandlerCall
from trueup.jobs.names import checked_name
from trueup.options import flag, whole

T = TypeVar("T")

MIN_INTERVAL = timedelta(seconds=1)
MAX_CONCURRENCY = 1_000
MAX_CURSOR = 64_000  # bytes of JSON: it is written every second, and belongs to a place, not to what was found there


class Scan(Generic[T]):
    """What `@app.scan(…)` makes of an async generator function.

    The generator is given the cursor to continue from, None at the beginning, and yields `(item, next_cursor)`: where to continue
    after this item. Consecutive items may share a cursor, as those of a page do; it is stored only when all of them are handled.
    """

    def __init__(
        self,
        name: str,
        source: Callable[[Any], AsyncIterator[tuple[T, Any]]],
        *,
        every: Duration,
        concurrency: int = 1,
        timeout: Duration = "5m",
        run_at_start: bool = True,
    ) -> None:
        self.name = checked_name("scan name", name)
        if len(name) > 190:
            raise ConfigError(
                f"scan {name!r}: at most 190 characters are allowed, because the name is part of its lease's name"
            )
        self.every = self._long_enough("every", every, MIN_INTERVAL)
        self.timeout = self._long_enough("timeout", timeout, timedelta(microseconds=1))
        self.concurrency = whole(f"scan {name!r}: concurrency", concurrency, MAX_CONCURRENCY)
        self.run_at_start = flag(f"scan {name!r}: run_at_start", run_at_start)
        if not inspect.isasyncgenfunction(source):
            raise ConfigError(
                f"scan {name!r}: an async generator function is needed (`async def` with `yield item, next_cursor`), not {source!r:.80}"
            )
        _takes_one(f"scan {name!r}: the generator", source, "the cursor to go on from")
        self._source = source
        self._handler: Callable[[T], Any] | None = None
        self.__name__ = source.__name__
        self.__doc__ = source.__doc__

    def __repr__(self) -> str:
        return f"<Scan {self.name!r}>"

    def __call__(self, cursor: Any = None) -> AsyncGenerator[tuple[T, Any], None]:
        """The generator itself, from this cursor on: no item is handled, and no progress is stored."""
        return cast("AsyncGenerator[tuple[T, Any], None]", self._source(cursor))

    def each(self, function: Callable[[T], Any]) -> Callable[[T], Any]:
        """Decorates the handler of an item: a coroutine function, or a plain one, which runs in a thread."""
        if self._handler is not None:
            raise ConfigError(
                f"scan {self.name!r}: each is declared twice ({_name(self._handler)} and {_name(function)})"
            )
        if not callable(function) or inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise ConfigError(f"scan {self.name!r}: each takes a function that handles one item, not {function!r:.80}")
        _takes_one(f"scan {self.name!r}: each", function, "the item")
        self._handler = function
        return function

    @property
    def handler(self) -> Callable[[T], Any]:
        """Raises ConfigError when there is none."""
        if self._handler is None:
            raise ConfigError(
                f"scan {self.name!r}: it has no handler for its items; decorate a function with @{self.__name__}.each"
            )
        return self._handler

    def handler_call(self) -> HandlerCall:
        return HandlerCall("scan", self.name, None, 1, None, {})

    @property
    def is_async(self) -> bool:
        handler = self.handler
        return iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004

    def pair(self, yielded: Any) -> tuple[T, str | None]:
        """The item, and its cursor as JSON; None for the beginning. Raises TypeError and InvalidArguments, naming the scan."""
        if not isinstance(yielded, tuple) or len(yielded) != 2:
            raise TypeError(
                f"scan {self.name!r}: the generator yielded {yielded!r:.80}; it must yield a pair: item, next_cursor"
            )
        item, cursor = yielded
        return item, self.encode(cursor)

    def encode(self, cursor: Any) -> str | None:
        """Strict: what JSON would quietly turn into something else is refused, or it would come back so after a crash only."""
        if cursor is None:
            return None
        with BUILDING:
            from pydantic_core import PydanticSerializationError, to_json

            from trueup.jobs.payload import checked, explain
        root = f"scan {self.name!r}: next_cursor"
        _only_json(cursor, root)
        try:
            encoded = to_json(cursor, inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError) as error:
            raise explain(cursor, root, error) from None
        if len(encoded) > MAX_CURSOR:
            raise InvalidArguments(f"{root}: {len(encoded):,} bytes of JSON are over the limit of {MAX_CURSOR:,}")
        return checked(encoded, cursor, root, MAX_CURSOR)

    def _long_enough(self, what: str, value: Duration, least: timedelta) -> timedelta:
        duration = duration_of(f"scan {self.name!r}: {what}", value)
        if duration < least:
            raise ConfigError(f"scan {self.name!r}: {what}={value!r} is too short")
        return duration


def _takes_one(who: str, function: Callable[..., Any], what: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C do not say
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigError(
            f"{who} is called with one argument, {what}; {_name(function)}{signature} does not take it"
        ) from None


def _only_json(value: Any, path: str, depth: int = 0) -> None:
    """A tuple passes and comes back as a list: unpacking does not mind."""
    if depth > 50:
        raise InvalidArguments(f"{path[:80]}…: nested too deep")
    if value is None or type(value) in (bool, int, float, str):
        return
    if type(value) in (list, tuple):
        for index, item in enumerate(value):
            _only_json(item, f"{path}[{index}]", depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidArguments(f"{path}: the key {key!r:.80} is not a text")
            _only_json(item, f"{path}.{key:.80}", depth + 1)
    else:
        raise InvalidArguments(
            f"{path}: {type(value).__name__} is not JSON and would change its type; use a text or a number"
        )


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", repr(function)))
