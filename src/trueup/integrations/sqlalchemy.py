"""Tables and rows described by SQLAlchemy: mapped classes and `Table`.

trueup reads and writes with its own connections; no engine and no session is used. SQLAlchemy's conversions of values still apply
(Enums, TypeDecorators, JSON), as in its dialect for psycopg, which is the driver here, too.

Nothing here configures mappers before the first row is made. Tables are declared while modules are imported, and SQLAlchemy
remembers it for good when it was made to look for a class that had not been imported yet.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from trueup.errors import ConfigError
from trueup.reconcile.shape import Shape, Wanted

try:
    from sqlalchemy import Column, Enum, Table, and_, inspect
    from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDialect
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import ColumnProperty, Mapper, SynonymProperty, configure_mappers, make_transient_to_detached
    from sqlalchemy.orm.attributes import QueryableAttribute, set_committed_value
    from sqlalchemy.sql import ClauseElement, ColumnElement, visitors
    from sqlalchemy.sql.expression import BindParameter, ColumnClause
    from sqlalchemy.sql.selectable import SelectBase, Subquery
    from sqlalchemy.types import TypeEngine
except ImportError as error:  # pragma: no cover - the tests have it
    raise ConfigError('SQLAlchemy models need SQLAlchemy 2: pip install "trueup[sqlalchemy]"') from error

DRIVER = PGDialect_psycopg()  # type: ignore[no-untyped-call]

# The types of PostgreSQL's numbers. Only numbers look at the type that came with a value; the value's own type says which.
FLOAT8, NUMERIC = 701, 1700


def describe(model: type | Table) -> MappedTable:
    return MappedTable(model)


class MappedTable:
    """The description of a table by a mapped class or a Table (`reconcile.models.Described`)."""

    def __init__(self, model: type | Table) -> None:
        self._mapper = None if isinstance(model, Table) else mapper_of(model)
        self.table = model if isinstance(model, Table) else table_of(mapper_of(model))
        self.title = self.table.name if isinstance(model, Table) else model.__name__

    @property
    def schema(self) -> str | None:
        return None if self.table.schema is None else str(self.table.schema)

    @property
    def name(self) -> str:
        return str(self.table.name)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(column.name) for column in self.table.primary_key.columns)

    def column(self, named: Any) -> str:
        if isinstance(named, str):
            found = self._attribute(named) if self._named(named) else self._columns().get(named)
            return named if found is None else str(found.name)
        if isinstance(named, QueryableAttribute):
            if self._mapper is None or not self._mapper.isa(named.parent.mapper):
                raise ConfigError(f"{self.title}: {named} is not of this model")
            return str(self._attribute(named.key).name)
        if isinstance(named, Column) and named.table is self.table:
            return str(named.name)
        raise ConfigError(f"{self.title}: {named!r:.80} is not a column of table {self.name!r}")

    def where(self, condition: Any) -> str | None:
        texts = [self._text(part) for part in (self._own_condition(), condition) if part is not None]
        return texts[0] if len(texts) == 1 else " and ".join(f"({text}\n)" for text in texts) or None

    def stored(self, column: str, value: Any) -> Any:
        found = self._columns().get(column)
        if found is not None:
            if isinstance(found.type, Enum):
                value = _member(found.type, value)
            bind = found.type.dialect_impl(DRIVER).bind_processor(DRIVER)
            value = value if bind is None else bind(value)
        return value.value if isinstance(value, enum.Enum) else value

    def _columns(self) -> dict[str, Column[Any]]:
        return {str(column.name): column for column in self.table.columns}

    def _named(self, name: str) -> bool:
        return self._mapper is not None and self._mapper.has_property(name)

    def _attribute(self, name: str) -> Column[Any]:
        assert self._mapper is not None
        found: Any = self._mapper.get_property(name)
        while isinstance(found, SynonymProperty):
            found = self._mapper.get_property(found.name)
        for column in found.columns if isinstance(found, ColumnProperty) else ():
            if isinstance(column, Column) and column.table is self.table:
                return column
        raise ConfigError(f"{self.title}.{name} is not a column of table {self.name!r}")

    def _own_condition(self) -> ColumnElement[bool] | None:
        """The condition of a class that shares its table with others."""
        mapper = self._mapper
        if mapper is None or not mapper.single or mapper.inherits is None or mapper.polymorphic_on is None:
            return None
        return mapper.polymorphic_on.in_([each.polymorphic_identity for each in mapper.self_and_descendants])

    def _text(self, condition: Any) -> str:
        if isinstance(condition, str):
            return condition
        who = f"{self.title}: where="
        if isinstance(condition, bool):  # `Model.column is None` compares here and now
            raise ConfigError(
                f"{who}{condition}: Python has evaluated this condition; write Model.column.is_(None) or similar"
            )
        try:
            clause: ClauseElement = condition if isinstance(condition, SelectBase) else and_(condition)
            for part in visitors.iterate(clause):
                self._check(who, part)
            return str(clause.compile(dialect=TEXT, compile_kwargs={"literal_binds": True}))
        except SQLAlchemyError as error:
            raise ConfigError(f"{who} cannot be written as SQL: {str(error).splitlines()[0]}") from None

    def _check(self, who: str, part: Any) -> None:
        if isinstance(part, SelectBase | Subquery):
            raise ConfigError(f"{who} contains a subquery; give the condition as text")
        if isinstance(part, BindParameter) and part.required:
            raise ConfigError(f"{who} has a parameter without a value: {part.key!r}")
        # What SQLAlchemy has annotated hashes like its original, and is not the same otherwise.
        if isinstance(part, ColumnClause) and part.table is not None and hash(part.table) != hash(self.table):
            raise ConfigError(f"{who} names {part}, which is not a column of table {self.name!r}")


class _TextCompiler(PGCompiler):
    def visit_column(self, *args: Any, **options: Any) -> str:
        options["include_table"] = False  # the statements it goes into call the table something else
        return super().visit_column(*args, **options)

    def render_literal_value(self, value: Any, type_: TypeEngine[Any]) -> str:
        text: str = super().render_literal_value(value, type_)  # type: ignore[no-untyped-call]
        if "\\" not in text:
            return text
        if not text.startswith("'"):
            raise ConfigError(
                f"{value!r:.60} in where= has a backslash and cannot be quoted; give the condition as text"
            )
        return f"E{text.replace(chr(92), chr(92) * 2)}"  # means the same whatever standard_conforming_strings is


class _Text(PGDialect):
    """Compiles SQL without parameters, so percent signs are not doubled."""

    statement_compiler = _TextCompiler
    supports_statement_cache = False
    _backslash_escapes = False  # some releases take an unknown server for one before 9.1


TEXT = _Text(paramstyle="named")  # type: ignore[no-untyped-call]


def shape(model: type) -> Shape:
    """Detached instances, as a closed session leaves them: what was not read raises when it is used."""
    mapper = mapper_of(model)
    table = table_of(mapper)
    # A row may belong to a subclass: then it becomes an instance of that, with the subclass's columns in this table.
    loads = {each: Loads(each, table) for each in mapper.self_and_descendants}
    wanted = {column: key for load in loads.values() for column, key in load.attributes.items()}
    decides = mapper.polymorphic_on

    def make(values: Mapping[str, Any]) -> Any:
        configure_mappers()
        kind = mapper
        if isinstance(decides, Column) and decides.name in values:
            kind = mapper.polymorphic_map.get(loads[mapper].read(decides.name, values), mapper)
        return loads.get(kind, loads[mapper]).make(values)

    return Shape(model.__name__, tuple(Wanted(key, (column,), True) for column, key in wanted.items()), make)


class Loads:
    """The columns of one mapped class in one table, and how to make an instance of them."""

    def __init__(self, mapper: Mapper[Any], table: Table) -> None:
        self._mapper = mapper
        self.attributes: dict[str, str] = {}
        self._readers: dict[str, Callable[[Any], Any]] = {}
        for column in table.columns:
            try:
                found = mapper.get_property_by_column(column)
            except SQLAlchemyError:
                continue  # the class leaves it out
            if isinstance(found, ColumnProperty) and (not found.deferred or column.primary_key):
                self.attributes[str(column.name)] = found.key
                self._readers[str(column.name)] = _reader(column.type)

    def read(self, column: str, values: Mapping[str, Any]) -> Any:
        return self._readers[column](values[column])

    def make(self, values: Mapping[str, Any]) -> Any:
        instance = self._mapper.class_manager.new_instance()
        for column, key in self.attributes.items():
            set_committed_value(instance, key, self.read(column, values))
        make_transient_to_detached(instance)
        state = inspect(instance)
        state.manager.dispatch.load(state, None)  # for listeners of loaded instances: reconstructors, mutable columns
        return instance


def _reader(kind: TypeEngine[Any]) -> Callable[[Any], Any]:
    """Converts a value from the driver as SQLAlchemy does."""
    own = kind.dialect_impl(DRIVER)
    usual = own.result_processor(DRIVER, NUMERIC) or _as_it_is
    of_floats = own.result_processor(DRIVER, FLOAT8) or _as_it_is

    def read(value: Any) -> Any:
        return of_floats(value) if isinstance(_first(value), float) else usual(value)

    return _as_it_is if usual is of_floats is _as_it_is else read


def _as_it_is(value: Any) -> Any:
    return value


def _first(value: Any) -> Any:
    """The first item of an array: arrays hold one type."""
    while isinstance(value, list):
        value = next((item for item in value if item is not None), None)
    return value


def _member(kind: Enum, value: Any) -> Any:
    if kind.enum_class is None or isinstance(value, enum.Enum) or value in kind.enums:
        return value
    try:
        return kind.enum_class(value)
    except ValueError:
        return value


def mapper_of(model: type) -> Mapper[Any]:
    mapper: Any = inspect(model, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise ConfigError(f"{model.__name__} is not mapped to a table; name a mapped class")
    return mapper


def table_of(mapper: Mapper[Any]) -> Table:
    table = mapper.local_table
    if not isinstance(table, Table):
        raise ConfigError(
            f"{mapper.class_.__name__} is mapped to a query, and rows of it cannot be claimed; name a table"
        )
    return table
