"""A user's table as it was described to `app.table(…)`. Whether it is really like that is looked at when a worker starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trueup.errors import ConfigError

LONGEST_NAME = 63  # bytes; PostgreSQL cuts longer ones off, and then talks of another thing


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Names exactly as they are in the database: they are quoted, so case counts and reserved words are fine."""

    schema: str | None
    name: str
    key: tuple[str, ...]
    state: str | None = None
    changed_at: str | None = None
    version: str | None = None
    lease_columns: tuple[str, str] | None = None  # owner (text), until (timestamptz)
    where: str | None = None  # SQL over the table's columns; trusted

    @classmethod
    def of(
        cls,
        name: str | tuple[str, str],
        key: str | Iterable[str],
        state: str | None = None,
        changed_at: str | None = None,
        version: str | None = None,
        lease_columns: Iterable[str] | None = None,
        where: str | None = None,
    ) -> TableSpec:
        """Raises ConfigError naming what cannot be a name."""
        schema, table = _place(name)
        keys = (key,) if isinstance(key, str) else tuple(key)
        shown = table if schema is None else f"{schema}.{table}"
        if not keys or len(set(keys)) < len(keys):
            raise ConfigError(f"table {shown!r}: key={key!r}: one or several different columns are needed")
        lease = None if lease_columns is None else tuple(lease_columns)
        if lease is not None and (len(lease) != 2 or isinstance(lease_columns, str) or lease[0] == lease[1]):
            raise ConfigError(f"table {shown!r}: lease_columns={lease_columns!r}: (owner, until) is needed")
        for column in (*keys, state, changed_at, version, *(lease or ())):
            if column is not None:
                checked_identifier(f"table {shown!r}: column", column)
        if where is not None and (not isinstance(where, str) or not where.strip() or "\0" in where):
            raise ConfigError(f"table {shown!r}: where={where!r}: a condition in SQL is needed")
        return cls(schema, table, keys, state, changed_at, version, lease, where)

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


def _place(name: str | tuple[str, str]) -> tuple[str | None, str]:
    """`"table"`, `"schema.table"`, or a pair for names that have dots in them."""
    if isinstance(name, str):
        schema, dot, table = name.partition(".")
        parts: tuple[str | None, str] = (schema, table) if dot else (None, schema)
    elif isinstance(name, tuple) and len(name) == 2:
        parts = name
    else:
        raise ConfigError(f"table {name!r}: write it like 'table' or 'schema.table', or as a pair of both")
    for part in parts:
        if part is not None:
            checked_identifier("table", part)
    return parts


def checked_identifier(what: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} {name!r}: a name is needed")
    if "\0" in name:
        raise ConfigError(f"{what} {name!r}: a name cannot have a NUL in it")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{what} {name!r}: not text that can be encoded") from None
    if length > LONGEST_NAME:
        raise ConfigError(f"{what} {name!r}: longer than PostgreSQL's {LONGEST_NAME} bytes")
    return name
