"""Sync twins of async methods: `get_sync = twin(get)`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from trueup.store.db.blocking import finish

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """What has sync twins."""

    def blocking(self) -> Self:
        """The same on a database whose statements block."""
        ...


B = TypeVar("B", bound=Blocking)


def twin(method: Callable[Concatenate[B, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[B, P], T]:
    """The method for code without an event loop: it blocks the thread instead."""

    @wraps(method)
    def run(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(method(self.blocking(), *args, **kwargs))

    run.__doc__ = f"`{method.__name__}` for code without an event loop."
    return run
