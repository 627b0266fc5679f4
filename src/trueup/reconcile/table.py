"""A user's table as `app.table(…)` describes it. A worker compares the description with the real table when it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from trueup.errors import ConfigError
from trueup.reconcile.models import Described

MAX_NAME = 63  # bytes; PostgreSQL cuts longer names, which then mean another table


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The table and its columns, with names exactly as in the database: they are quoted, so case counts and reserved words are fine."""

    schema: str | None
    name: str
    key: tuple[str, ...]
    state: str | None = None
    changed_at: str | None = None
    version: str | None = None
    lease_columns: tuple[str, str] | None = None  # owner (text), until (timestamptz)
    where: str | None = None  # SQL over the table's columns; trusted
    model: Described | None = field(default=None, compare=False, repr=False)  # the class it was described by

    @classmethod
    def of(
        cls,
        name: str | tuple[str | None, str],
        key: str | Iterable[str],
        state: str | None = None,
        changed_at: str | None = None,
        version: str | None = None,
        lease_columns: Iterable[str] | None = None,
        where: str | None = None,
    ) -> TableSpec:
        """Raises ConfigError naming what cannot be a name, and a column that was given two parts."""
        schema, table = _place(name)
        shown = table if schema is None else f"{schema}.{table}"
        keys = (key,) if isinstance(key, str) else _names(f"table {shown!r}: key", key)
        if not keys:
            raise ConfigError(f"table {shown!r}: key={key!r}: one or several columns are needed")
        lease = None if lease_columns is None else _names(f"table {shown!r}: lease_columns", lease_columns)
        if lease is not None and len(lease) != 2:
            raise ConfigError(f"table {shown!r}: lease_columns={lease_columns!r}: (owner, until) is needed")
        parts: dict[str, str] = {}
        optional = {"state": state, "changed_at": changed_at, "version": version}
        named = [(part, column) for part, column in optional.items() if column is not None]
        named += [("key", column) for column in keys] + [("lease_columns", column) for column in lease or ()]
        for part, column in named:
            checked_identifier(f"table {shown!r}: {part} column", column)
            if column in parts:
                raise ConfigError(f"table {shown!r}: column {column!r} is named twice: {parts[column]}= and {part}=")
            parts[column] = part
        if where is not None and (not isinstance(where, str) or not where.strip() or "\0" in where):
            raise ConfigError(f"table {shown!r}: where={where!r}: a condition in SQL is needed")
        pair = None if lease is None else (lease[0], lease[1])
        return cls(schema, table, keys, state, changed_at, version, pair, where)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def _place(name: str | tuple[str | None, str]) -> tuple[str | None, str]:
    """`"table"`, `"schema.table"`, or a pair of both for names that have dots in them; its schema may be None."""
    if isinstance(name, str):
        schema, dot, table = name.partition(".")
        if "." in table:
            raise ConfigError(
                f"table {name!r}: it has two dots; if a name contains dots, write a pair, (schema, table)"
            )
        parts: tuple[str | None, str] = (schema, table) if dot else (None, schema)
    elif isinstance(name, tuple) and len(name) == 2:
        parts = name
    else:
        raise ConfigError(f"table {name!r}: write it like 'table' or 'schema.table', or as a pair of both")
    schema_name, table_name = parts
    if schema_name is not None:
        checked_identifier("schema", schema_name)
    checked_identifier("table", table_name)
    return parts


def _names(what: str, given: object) -> tuple[str, ...]:
    # The order of a set differs from process to process, and with it would the key of a row.
    if isinstance(given, str | bytes | Set | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"{what}={given!r}: column names are needed, in order")
    return tuple(given)


def checked_identifier(what: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} {name!r}: a name is needed")
    if "\0" in name:
        raise ConfigError(f"{what} {name!r}: a name cannot contain NUL")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r}: not text that can be encoded") from None
    if length > MAX_NAME:
        raise ConfigError(f"{what} {name!r}: longer than PostgreSQL's {MAX_NAME} bytes")
    return name
