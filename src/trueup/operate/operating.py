"""The base of the groups of operations: `app.jobs`, `app.schedules`, `app.reconcilers` and the rest.

`trueup.store.explained` explains the database errors that public methods raise. `get_sync = twin(get)` is the method for code
without an event loop: it runs the same coroutine on a database whose statements block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from trueup.operate.acting import Recorder
from trueup.store.actions import Begins
from trueup.store.db.blocking import block, finish
from trueup.store.db.repository import Repository
from trueup.store.explained import explain
from trueup.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class Operating:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._database: Begins = store.pool
        self._pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def blocking(self) -> Self:
        """The same operations on a database whose statements block."""
        same = copy(self)
        for name, part in vars(self).items():
            if isinstance(part, Repository | Recorder):
                setattr(same, name, part.on(self._store.blocking))
        same._database, same._pause = self._store.blocking, block
        return same

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if iscoroutinefunction(method) and not name.startswith("_"):
                setattr(cls, name, _explained(method))


G = TypeVar("G", bound=Operating)


def _explained(
    method: Callable[Concatenate[G, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[G, P], Coroutine[Any, Any, T]]:
    @wraps(method)
    async def run(self: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, *args, **kwargs)
        except Exception as error:
            await explain(self._store, self._database, error)
            raise

    return run


def twin(method: Callable[Concatenate[G, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[G, P], T]:
    """The same method for code without an event loop: it blocks its thread."""
    explained = _explained(method)

    @wraps(method)
    def run(self: G, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(explained(self.blocking(), *args, **kwargs))

    run.__doc__ = f"`{method.__name__}` for code without an event loop."
    return run
