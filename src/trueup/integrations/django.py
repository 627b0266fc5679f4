"""Tables and rows described by Django models.

trueup reads and writes with its own connections. It only uses Django's connection to convert values, which does not open it; a
handler's use of the ORM goes through Django's own connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from trueup.errors import ConfigError
from trueup.reconcile.shape import Shape, Wanted

try:
    from django.conf import settings
    from django.core.exceptions import FieldDoesNotExist
    from django.db import connections, models, router
    from django.utils.timezone import is_aware, is_naive, make_aware, make_naive
except ImportError as error:  # pragma: no cover - the tests have it
    raise ConfigError('Django models need Django: pip install "trueup[django]"') from error


def describe(model: Any) -> ModelTable:
    return ModelTable(model)


class ModelTable:
    """A model's description of its table (`reconcile.models.Described`)."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._meta = meta_of(model)
        # `schema"."table` is how Django takes a schema: it puts quotes around whatever it is given.
        schema, dot, table = self._meta.db_table.strip('"').partition('"."')
        self.schema: str | None = schema if dot else None
        self.name: str = table if dot else schema

    @property
    def key(self) -> tuple[str, ...]:
        fields = getattr(self._meta, "pk_fields", None) or [self._meta.pk]  # composite keys came with 5.2
        return tuple(field.column for field in fields)

    def column(self, named: Any) -> str:
        field = self._field(named)
        if field is None:
            return str(named)
        if field not in own_fields(self._meta):
            raise ConfigError(f"{self._model.__name__}.{field.name} is not a column of table {self.name!r}")
        return str(field.column)

    def where(self, condition: Any) -> str | None:
        if condition is None or isinstance(condition, str):
            return condition
        raise ConfigError(
            f"{self._model.__name__}: where={condition!r:.80}: with Django models, give the condition as text"
        )

    def stored(self, column: str, value: Any) -> Any:
        for field in own_fields(self._meta):
            if field.column == column:
                value = field.get_db_prep_save(value, connection=connection_of(self._model))
                if isinstance(value, datetime) and not settings.USE_TZ and is_naive(value):
                    value = make_aware(value)  # Django's sessions are in that time zone, and trueup's in UTC
                break
        return value.value if isinstance(value, Enum) else value

    def _field(self, named: Any) -> Any | None:
        """By `Model.field`, by the field's name, `owner` or `owner_id`, or by `pk`. None: it may be a column's name."""
        if not isinstance(named, str):
            field = getattr(named, "field", None)
            if field is None:
                raise ConfigError(f"{self._model.__name__}: {named!r:.80} is not a field of this model")
            return field
        if named == "pk":
            return self._meta.pk
        try:
            return self._meta.get_field(named)
        except FieldDoesNotExist:
            return None


def shape(model: Any) -> Shape:
    """Instances as if Django had read them. Fields of a parent's table are deferred."""
    fields = own_fields(meta_of(model))
    names = [field.attname for field in fields]
    wanted = tuple(Wanted(field.attname, (field.column,), True) for field in fields)
    readers: list[Callable[[Any], Any]] = []

    def make(values: Mapping[str, Any]) -> Any:
        connection = connection_of(model)
        if not readers:
            readers.extend(_reader(field, connection) for field in fields)
        read = [reader(values[field.column]) for reader, field in zip(readers, fields, strict=True)]
        return model.from_db(connection.alias, names, read)

    return Shape(model.__name__, wanted, make)


def _reader(field: Any, connection: Any) -> Callable[[Any], Any]:
    """Converts a value as Django does. Django expects some types as text that this driver converts itself."""
    expression = field.get_col(field.model._meta.db_table)
    converters = [*connection.ops.get_db_converters(expression), *field.get_db_converters(connection)]

    def read(value: Any) -> Any:
        if value is not None:
            if isinstance(field, models.JSONField):
                value = json.dumps(value)
            elif isinstance(field, models.GenericIPAddressField):
                value = str(value)
            elif isinstance(value, datetime) and not settings.USE_TZ and is_aware(value):
                value = make_naive(value)
        for convert in converters:
            value = convert(value, expression, connection)
        return value

    return read


def meta_of(model: Any) -> Any:
    if model._meta.abstract:
        raise ConfigError(f"{model.__name__} is abstract and has no table; name a model that has")
    return model._meta


def own_fields(meta: Any) -> list[Any]:
    """The fields with a column in the model's own table; of a proxy, those of its model."""
    return list(meta.concrete_model._meta.local_concrete_fields)


def connection_of(model: Any) -> Any:
    return connections[router.db_for_read(model)]
