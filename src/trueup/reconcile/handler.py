"""A reconciler's handler: which arguments its signature asks for, and which outcome its return value means."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from trueup.errors import ConfigError
from trueup.jobs.context import Context
from trueup.reconcile.outcome import Delete, Outcome, Stay, Unchanged
from trueup.reconcile.shape import Shape

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class RowHandler:
    """A function of a row.

    Its first parameter is the row, of the `shape` that is annotated there. It may ask for its Context (so annotated, or called
    `ctx`) and for the transaction that holds the row (called `tx`, or annotated AsyncConnection): `context` and `tx` are
    the names of these parameters. Everything else needs a default. Raises ConfigError when it asks for what cannot be given.
    """

    def __init__(self, function: Callable[..., Any], who: str, local_names: Mapping[str, Any] | None = None) -> None:
        self.function = function
        self.who = who
        self.translate: Callable[[Outcome], Outcome] = lambda outcome: outcome  # into the table's own names
        code = _code(function, who)
        self.is_async = inspect.iscoroutinefunction(code)
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            raise ConfigError(f"{who}: it is a generator; return the outcome instead of yielding")
        hints = _hints(code, who, local_names)
        row, *others = _parameters(function, who)
        hint = hints.get(row.name, inspect.Parameter.empty)
        if row.kind is row.VAR_POSITIONAL:
            hint = inspect.Parameter.empty
        elif row.kind in (row.KEYWORD_ONLY, row.VAR_KEYWORD) or _wants_context(row, hint) or _wants_tx(row, hint):
            raise ConfigError(f"{who}: its first parameter is {str(row)!r}; the row must come first")
        self.shape = Shape.of(hint, who, local_names)
        self.context: str | None = None
        self.tx: str | None = None
        for parameter in others:
            self._take(parameter, hints.get(parameter.name, inspect.Parameter.empty))

    def __repr__(self) -> str:
        return f"<RowHandler of {self.who}: {self.shape.title}>"

    def call(self, row: Any, context: Any, tx: AsyncConnection[Any] | None = None) -> Any:
        """What the function returns; a coroutine when `is_async`."""
        asked: dict[str, Any] = {}
        if self.context is not None:
            asked[self.context] = context
        if self.tx is not None:
            asked[self.tx] = tx
        return self.function(row, **asked)

    def outcome(self, returned: Any) -> Outcome:
        """The outcome that a return value means, in the table's own names. Raises TypeError if it means none."""
        return self.translate(outcome_of(returned, self.who))

    def _take(self, parameter: inspect.Parameter, hint: Any) -> None:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return
        if _wants_context(parameter, hint):
            self.context = self._once(parameter, self.context)
        elif _wants_tx(parameter, hint):
            if not self.is_async:
                raise ConfigError(f"{self.who}: {parameter.name} is an asynchronous connection; make it an async def")
            if _is_connection(hint, "Connection"):
                raise ConfigError(
                    f"{self.who}: {parameter.name} is an asynchronous connection; annotate AsyncConnection"
                )
            self.tx = self._once(parameter, self.tx)
        elif parameter.default is parameter.empty:
            raise ConfigError(
                f"{self.who}: nothing is known for its parameter {str(parameter)!r}; a handler takes its row, "
                "ctx: Context and tx, and all else needs a default"
            )

    def _once(self, parameter: inspect.Parameter, before: str | None) -> str:
        if before is not None:
            raise ConfigError(f"{self.who}: {before} and {parameter.name} ask for the same value")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{self.who}: {parameter.name} is passed by name; put it after the /")
        return parameter.name


def outcome_of(returned: Any, who: str = "the handler") -> Outcome:
    """The outcome that a return value means. None is `Unchanged()`, and a class without required values stands for an instance.
    Raises TypeError for anything else.
    """
    if returned is None:
        return Unchanged()
    if isinstance(returned, Outcome):
        return returned
    if isinstance(returned, type) and returned in (Stay, Delete, Unchanged):
        return returned()
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()  # it never began; without this, Python warns of it somewhere else
        raise TypeError(f"{who} returned an awaitable; make it an async def")
    if isinstance(returned, BaseException):
        raise TypeError(f"{who} returned {returned!r:.60}; raise it")
    raise TypeError(f"{who} returned {returned!r:.60}: To, Stay, Delete, Unchanged, Again or nothing is needed")


def _code(function: Callable[..., Any], who: str) -> Callable[..., Any]:
    """Where the annotations are, and whether it is a coroutine function: under partials, behind callable objects."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type) or not callable(function):
        raise ConfigError(f"{who}: {function!r:.60} is no function")
    return function if inspect.isroutine(function) else type(function).__call__


def _hints(code: Callable[..., Any], who: str, local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return get_type_hints(code, localns=dict(local_names or {}), include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ConfigError(f"{who}: annotation cannot be resolved: {error}") from None


def _parameters(function: Callable[..., Any], who: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{who}: its parameters cannot be known: {error}") from None
    if not parameters:
        raise ConfigError(f"{who}: it has no parameter for the row; the row is its first parameter")
    return parameters


def _wants_context(parameter: inspect.Parameter, hint: Any) -> bool:
    return _is_a(hint, Context) or (parameter.name == "ctx" and (hint is Any or hint is parameter.empty))


def _wants_tx(parameter: inspect.Parameter, hint: Any) -> bool:
    return parameter.name == "tx" or _is_connection(hint, "AsyncConnection") or _is_connection(hint, "Connection")


def _is_connection(hint: Any, name: str) -> bool:
    psycopg = sys.modules.get("psycopg")  # where it was not imported, nothing can be annotated with it
    return psycopg is not None and _is_a(hint, getattr(psycopg, name))


def _is_a(hint: Any, kind: type) -> bool:
    """Whether this is it, one kind of it (`AsyncConnection[DictRow]`), or nothing else but None."""
    if get_origin(hint) in (Union, UnionType):
        choices = [choice for choice in get_args(hint) if choice is not NoneType]
        return len(choices) == 1 and _is_a(choices[0], kind)
    hint = get_origin(hint) or hint
    return isinstance(hint, type) and issubclass(hint, kind)
