"""A handler's parameters as a validator: checked when a job is enqueued, and again when it is run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError, SchemaSerializer
from typing_extensions import TypedDict

from trueup.errors import ConfigError, InvalidArguments
from trueup.instead import instead
from trueup.jobs.context import Context
from trueup.jobs.job import Tick
from trueup.jobs.payload import CONFIG, SERIALIZED, checked, explain


class Arguments:
    """What a job takes.

    `names` are its stored parameters in order, `defaults` the values of omitted ones; `context` is the parameter for its
    Context, if it has one. `returns` is its return annotation.
    """

    def __init__(self, kind: str, function: Callable[..., Any], local_names: Mapping[str, Any] | None = None) -> None:
        self.kind = kind
        hints = _hints(kind, function, local_names)
        self.returns: Any = hints.get("return", Any)
        self.context: str | None = None
        self.tick: str | None = None
        self.defaults: dict[str, Any] = {}
        self._positional_only: list[str] = []
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            hint = hints.get(name, Any)
            if _is_context(hint):
                self.context = name
                continue
            if hint is Tick:
                self.tick = name
                continue
            _check_storable(kind, parameter, instance=not fields and name in ("self", "cls") and name not in hints)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional_only.append(name)
            if parameter.default is parameter.empty:
                fields[name] = Required[hint]
            else:
                fields[name] = NotRequired[hint]
                self.defaults[name] = parameter.default
        self.names = tuple(fields)
        self._to_annotate = "".join(
            f"; for the worker to fill in {name}, annotate it: {name}: Context"
            for name in ("ctx", "context")
            if name in fields and name not in hints
        )
        self._positional = tuple(
            name
            for name, parameter in inspect.signature(function).parameters.items()
            if name in fields and parameter.kind is not parameter.KEYWORD_ONLY
        )
        self._adapter = _adapter(kind, fields)
        # A TypedDict's own configuration counts for what is nested in it, but not for its own fields.
        self._serializer = SchemaSerializer(self._adapter.core_schema, SERIALIZED)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, validated. Raises InvalidArguments naming each that does not fit."""
        if len(args) > len(self._positional):
            raise InvalidArguments(
                f"{self.kind}: takes {len(self._positional)} positional arguments, {len(args)} were given"
            )
        values = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                raise InvalidArguments(f"{self.kind}: argument {name!r} was given twice")
            values[name] = value
        try:
            return self._adapter.validate_python(values)
        except ValidationError as error:
            invalid = _invalid(self.kind, error, _options())
            raise InvalidArguments(f"{invalid}{self._to_annotate}") from None

    def dump(self, values: dict[str, Any], limit: int) -> str:
        """Bound arguments as JSON. Raises InvalidArguments naming what cannot be stored."""
        try:
            encoded = self._serializer.to_json(values)
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise explain(values, self.kind, error) from None
        return checked(encoded, values, self.kind, limit)

    def load(self, stored: str) -> tuple[list[Any], dict[str, Any]]:
        """Stored arguments as the call they mean. Raises InvalidArguments when they no longer fit the signature."""
        values = self.by_name(stored)
        if not self._positional_only:
            return [], values
        return [values.pop(name) for name in self._positional_only if name in values], values

    def by_name(self, stored: str) -> dict[str, Any]:
        """Stored arguments by name, without omitted ones. Raises InvalidArguments as `load` does."""
        try:
            return self._adapter.validate_json(stored)
        except ValidationError as error:
            raise _invalid(self.kind, error) from None


def _adapter(kind: str, fields: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
    make: Any = TypedDict  # made at run time, which type checkers do not follow
    shape = make(kind, fields)
    shape.__pydantic_config__ = CONFIG
    try:
        return TypeAdapter(shape)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        if len(fields) > 1:
            for name, hint in fields.items():  # one at a time, to name the argument
                _adapter(kind, {name: hint})
        which = repr(next(iter(fields))) if len(fields) == 1 else "of several"
        said = "pass an id instead, or make the type a dataclass or a pydantic model"
        if not isinstance(error, PydanticSchemaGenerationError):
            said = str(error).splitlines()[0]
        raise ConfigError(f"job {kind!r}: the type of argument {which} cannot be stored as JSON: {said}") from None


def _check_storable(kind: str, parameter: inspect.Parameter, *, instance: bool) -> None:
    """Raises ConfigError for a parameter that no stored argument can fill; `instance`: it is the first of a method."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ConfigError(
            f"job {kind!r}: {parameter} cannot be stored; name each argument. If a decorator of yours takes it, use functools.wraps there"
        )
    if instance:
        raise ConfigError(
            f"job {kind!r}: its first parameter is {parameter.name!r}, and a worker has no instance of the class; "
            "declare a function outside the class, or a @staticmethod"
        )


def _hints(kind: str, function: Callable[..., Any], local_names: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        return get_type_hints(function, localns=dict(local_names or {}), include_extras=True)
    except NameError as error:
        raise ConfigError(f"job {kind!r}: annotation cannot be resolved: {error}") from None


def _is_context(hint: Any) -> bool:
    if hint is Context:
        return True
    if get_origin(hint) in (Union, UnionType):
        return Context in get_args(hint) and set(get_args(hint)) <= {Context, NoneType}
    return False


def _options() -> Collection[str]:
    from trueup.jobs.options import Options

    return {field.name for field in dataclasses.fields(Options)}


def _invalid(kind: str, error: ValidationError, options: Collection[str] = ()) -> InvalidArguments:
    lines = []
    for item in error.errors(include_url=False, include_input=False, include_context=False)[:10]:
        place = ".".join(str(part) for part in item["loc"]) or "arguments"
        extra = "is not one of its arguments"
        if place in options:
            extra = f"is an option and not one of its arguments; write job.using({place}=…).enqueue(…)"
        elif "=" in (written := instead("using()", place) or ""):
            extra += f"; an option of one enqueue is given as job.using({written}).enqueue(…)"
        message = {"missing": "is missing", "extra_forbidden": extra}.get(item["type"], item["msg"])
        lines.append(f"{place}: {message}")
    return InvalidArguments(f"{kind}: " + "; ".join(lines))
