"""What a handler gets for a row, by the annotation of its first parameter.

| annotation | what it gets |
| --- | --- |
| none, `Row`, `Any` | a `Row` |
| `dict`, `Mapping`, a TypedDict | a `dict` |
| a dataclass, a NamedTuple | one of it, made of the columns that it names; Enums become members, nothing else is converted |
| a pydantic model or dataclass | one of it, validated; columns go by alias where there is one |
| a SQLAlchemy mapped class | a detached instance; what is not in the row raises when it is used, nothing is loaded |
| a Django model | an instance as if read by Django |
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from difflib import get_close_matches
from enum import Enum
from types import NoneType, UnionType
from typing import Any, NamedTuple, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import TypeAliasType, get_type_hints, is_typeddict

from trueup.building import BUILDING
from trueup.errors import ConfigError
from trueup.reconcile.models import integration_of
from trueup.reconcile.row import Row

POSSIBLE = "a Row, a dict, a TypedDict, a dataclass, a NamedTuple, a pydantic model, a SQLAlchemy mapped class or a Django model"


class Wanted(NamedTuple):
    """A field of what is made, and the columns of which any one fills it."""

    field: str
    columns: tuple[str, ...]
    required: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How a row becomes what the handler takes. `wanted` is None where it takes the whole row.

    `make` may raise anything when a row does not fit; that is the failure of this one row.
    """

    title: str
    wanted: tuple[Wanted, ...] | None
    make: Callable[[Mapping[str, Any]], Any]

    @classmethod
    def of(cls, annotation: Any, who: str = "the handler", local_names: Mapping[str, Any] | None = None) -> Shape:
        """Raises ConfigError when nothing can be made for this annotation, or its own annotations cannot be resolved."""
        annotation = _bare(annotation)
        if any(annotation is nothing for nothing in (inspect.Parameter.empty, Any, object, Row)):
            return cls("Row", None, Row)
        kind = get_origin(annotation) or annotation
        if kind in (dict, Mapping, MutableMapping):
            return cls("dict", None, dict)
        if not isinstance(kind, type):
            raise _impossible(who, annotation)
        integration = integration_of(kind)
        if integration is not None:  # before all others: a mapped class may be a dataclass or a pydantic model as well
            made: Shape = integration.shape(kind)
            return made
        try:
            if hasattr(kind, "__pydantic_fields__"):
                with BUILDING:
                    from trueup.reconcile.validated import (
                        shape_of,  # with pydantic, which not every program has imported
                    )
                return shape_of(kind)
            if is_typeddict(kind):
                return _typed_dict(kind, local_names)
            if dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
                return _constructed(kind, local_names)
        except (NameError, AttributeError, TypeError, SyntaxError) as error:
            raise ConfigError(f"{who}: {kind.__name__} cannot be made of rows: {error}") from None
        raise _impossible(who, annotation)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns it has a use for, whether or not the table has them. None: all that the table has."""
        if self.wanted is None:
            return None
        return tuple(dict.fromkeys(column for wanted in self.wanted for column in wanted.columns))

    def check(self, who: str, columns: Collection[str]) -> None:
        """Raises ConfigError naming each field that has neither a column nor a default."""
        missing = [
            f"{wanted.columns[0]!r}{_hint(wanted, columns)}"
            for wanted in self.wanted or ()
            if wanted.required and not set(wanted.columns) & set(columns)
        ]
        if missing:
            raise ConfigError(f"{who}: {self.title} needs columns that the table does not have: {', '.join(missing)}")


def _impossible(who: str, annotation: Any) -> ConfigError:
    shown = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return ConfigError(
        f"{who}: its row is annotated {shown}, which cannot hold a row; annotate it with {POSSIBLE}, or omit the annotation"
    )


def _hint(wanted: Wanted, columns: Iterable[str]) -> str:
    if wanted.field in columns:  # the field is there, only its alias is not
        return f" (there is {wanted.field!r}: set populate_by_name=True)"
    near = get_close_matches(wanted.columns[0], columns, n=2)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _bare(annotation: Any) -> Any:
    while True:
        if hasattr(annotation, "__metadata__"):  # Annotated
            annotation = annotation.__origin__
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        else:
            return annotation


def _typed_dict(kind: type, local_names: Mapping[str, Any] | None) -> Shape:
    hints = _hints(kind, local_names)
    needed: Collection[str] = kind.__required_keys__  # type: ignore[attr-defined]
    wanted = []
    for name, hint in hints.items():
        # Where annotations are texts, `__required_keys__` was made without knowing what they say.
        said: Any = get_origin(hint)
        required = said is Required or (name in needed and said is not NotRequired)
        wanted.append(Wanted(name, (name,), required))
    convert = _conversion(hints)
    return Shape(kind.__name__, tuple(wanted), lambda values: convert(values, hints))


def _constructed(kind: type, local_names: Mapping[str, Any] | None) -> Shape:
    """Dataclasses and NamedTuples: what their constructor takes, by name."""
    parameters = inspect.signature(kind).parameters
    convert = _conversion(_hints(kind, local_names))
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return Shape(kind.__name__, None, lambda values: kind(**convert(values, values)))
    wanted = tuple(
        Wanted(name, (name,), parameter.default is parameter.empty)
        for name, parameter in parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    )
    return Shape(kind.__name__, wanted, lambda values: kind(**convert(values, parameters)))


def _hints(kind: type, local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    """A name means what it means where the class is; only for one unknown there, what it means where the handler is."""
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError:
        return get_type_hints(kind, localns=dict(local_names or {}), include_extras=True)


def _conversion(hints: Mapping[str, Any]) -> Callable[[Mapping[str, Any], Iterable[str]], dict[str, Any]]:
    """Of the named values those that are there, with those annotated as Enum turned into its members."""
    enums = {name: enum for name, hint in hints.items() if (enum := _enum(hint)) is not None}

    def convert(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        taken = {name: values[name] for name in names if name in values}
        for name, enum in enums.items():
            if taken.get(name) is not None:
                try:
                    taken[name] = enum(taken[name])
                except ValueError as error:
                    raise ValueError(f"column {name!r}: {error}") from None
        return taken

    return convert


def _enum(hint: Any) -> type[Enum] | None:
    hint = _bare(hint)
    if isinstance(hint, dataclasses.InitVar):
        return _enum(hint.type)
    if get_origin(hint) in (Required, NotRequired):
        return _enum(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        others = [choice for choice in get_args(hint) if choice is not NoneType]
        return _enum(others[0]) if len(others) == 1 else None
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else None
