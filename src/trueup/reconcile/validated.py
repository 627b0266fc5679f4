"""Rows as pydantic models and pydantic dataclasses: validated, with columns by alias where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from trueup.reconcile.shape import Shape, Wanted


def shape_of(kind: type) -> Shape:
    """Raises TypeError when pydantic cannot complete the class."""
    try:
        return _of_model(kind) if issubclass(kind, BaseModel) else _of_dataclass(kind)
    except PydanticUserError as error:
        raise TypeError(str(error)) from None


def _of_model(kind: type[BaseModel]) -> Shape:
    if not kind.__pydantic_complete__:
        kind.model_rebuild()
    # What looks at the input as a whole may look at any column.
    before = any(step.info.mode != "after" for step in kind.__pydantic_decorators__.model_validators.values())
    if before or kind.model_config.get("extra") == "allow" or kind.__pydantic_root_model__:
        wanted = None
    else:
        wanted = tuple(_wanted(kind.model_fields, kind.model_config))
    return Shape(kind.__name__, wanted, _picked(wanted, kind.model_validate))


def _of_dataclass(kind: Any) -> Shape:
    adapter = TypeAdapter(kind)
    wanted = tuple(_wanted(kind.__pydantic_fields__, kind.__pydantic_config__))
    return Shape(kind.__name__, wanted, _picked(wanted, adapter.validate_python))


def _picked(wanted: Iterable[Wanted] | None, validate: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Without other columns, which `extra="forbid"` would refuse: the table may have more than the model."""
    if wanted is None:
        return lambda values: validate(dict(values))
    names = [column for field in wanted for column in field.columns]
    return lambda values: validate({name: values[name] for name in names if name in values})


def _wanted(fields: Mapping[str, FieldInfo], config: Mapping[str, Any]) -> Iterator[Wanted]:
    by_name = bool(config.get("validate_by_name") or config.get("populate_by_name"))
    by_alias = config.get("validate_by_alias", True)
    for name, field in fields.items():
        if field.init is False:
            continue
        aliases = list(_aliases(field.validation_alias)) if by_alias else []
        if by_name or not aliases:
            aliases.append(name)
        yield Wanted(name, tuple(aliases), field.is_required())


def _aliases(alias: str | AliasPath | AliasChoices | None) -> Iterator[str]:
    if isinstance(alias, AliasChoices):
        for choice in alias.choices:
            yield from _aliases(choice)
    elif isinstance(alias, AliasPath):
        yield str(alias.path[0])
    elif alias is not None:
        yield alias
