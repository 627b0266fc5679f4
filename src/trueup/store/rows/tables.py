"""Inspects a user's table when a worker starts.

A relation whose rows cannot be claimed (a view, a table with rules) is refused; the error says what exists instead and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from psycopg import sql

from trueup.errors import ConfigError
from trueup.reconcile.table import TableSpec
from trueup.store.db.load import Statements
from trueup.store.db.own_connection import fetch
from trueup.store.db.repository import Database

CANNOT_BE_CLAIMED = {
    "v": "is a view: its rows cannot be claimed; name the table under it",
    "m": "is a materialized view: its rows cannot be changed; name the table under it",
    "f": "is a foreign table: its rows are in another database; give that database its own App",
    "i": "is an index; name its table",
    "I": "is an index; name its table",
    "S": "is a sequence; name a table",
    "c": "is a composite type; name a table",
    "t": "is a TOAST table; name the table it belongs to",
}
TEMPORARY = "is a temporary table: only the session that created it sees its rows, and workers have many sessions; use an ordinary table"
INHERITED = (
    "has tables that inherit from it: a unique index does not cover those, so a key may exist twice; "
    "partition it instead, or name one of them"
)
FOREIGN_PARTITION = (
    "its partition {} is a foreign table: its rows are in another database and cannot be claimed; detach it, or declare "
    "each local partition as a table"
)
RULES = (
    "has rules for UPDATE or DELETE ({}): they rewrite trueup's statements, so that rows could not be claimed or would silently "
    "stay unchanged; replace them by triggers, and DROP RULE"
)
MAX_LISTED = 40  # columns named in a message


@dataclass(frozen=True, slots=True)
class Column:
    """Field order is that of `tables/columns.sql`."""

    name: str
    type: str  # as PostgreSQL prints it, without length or precision: a cast to it does not cut; of a domain, what is under it
    category: str  # text, int, enum, timestamptz, timestamp, uuid, json or other; of a domain, that of what is under it
    not_null: bool
    generated: bool  # generated columns and "generated always" identities cannot be written
    labels: tuple[str, ...] = ()  # of an enum
    length: int | None = None  # characters that fit, where that is limited
    quoted: str = ""  # for people: quoted only where it has to be
    readable: bool = True  # by this role
    writable: bool = True
    # The schema of those that compare its values, quoted; None: wherever they are found.
    operators: str | None = "pg_catalog"


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index; `flaw` is why it does not make its columns a key."""

    name: str
    columns: tuple[str, ...]
    flaw: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """A table as it was when it was inspected."""

    spec: TableSpec
    schema: str  # where it really is
    name: str
    columns: Mapping[str, Column]  # in table order
    partitioned: bool
    oid: int
    quoted: str  # schema and name for people: quoted only where it has to be
    uniques: tuple[Unique, ...]
    role: str  # the worker's role, quoted likewise
    deletable: bool  # by this role
    policies: tuple[Policy, ...] | None = None  # that apply to this role; None when row-level security does not
    triggered: bool = False  # whether it has triggers, or partitions, which may have some
    sign: int | None = None  # the table's fingerprint: if it differs, the table has changed

    @property
    def counted(self) -> int | None:
        """The oid under which PostgreSQL counts writes; None for a partitioned table, because it counts each partition for itself."""
        return None if self.partitioned else self.oid

    def type(self, column: str) -> str:
        """Raises ConfigError when there is no such column."""
        if column not in self.columns:
            raise wrong(self, None, no_column(self, f"column {column!r}", column))
        return self.columns[column].type

    def listed(self, columns: Iterable[str]) -> str:
        """For DDL that people read."""
        return ", ".join(self.columns[column].quoted for column in columns)


def named(*parts: str) -> sql.Identifier:
    """An identifier for a statement that has parameters: in one, psycopg takes a `%` for the start of a placeholder."""
    return sql.Identifier(*(part.replace("%", "%%") for part in parts))


async def find(database: Database, statements: Statements, spec: TableSpec, who: str | None = None) -> Found:
    """Inspect a table. Raises ConfigError when the name means nothing, or something that is not a table.

    `who` is the reconciler to name in the error ("reconciler 'x'"). Whether the columns are as declared is for `check`.
    """
    async with database.transaction() as connection:  # one session: the search_path stays the same
        asked = {"schema": spec.schema, "name": spec.name}
        # First of all: what changes while the rest is read is then noticed the next time.
        ((sign,),) = await fetch(connection, statements["tables/sign"], signed(spec))
        places = await fetch(connection, statements["tables/find"], asked)
        if not places:
            ((at, path, role, closed, schemas, tables),) = await fetch(connection, statements["tables/around"], asked)
            said = _no_table(spec, at, path, schemas, [(schema, name) for schema, name in tables])
            raise wrong(spec, who, said if closed is None else f"{said} {_closed(closed, role)}")
        place = _Place(*places[0])
        _check_place(spec, who, place)
        table = {"table": place.oid}
        columns = [_column(*row) for row in await fetch(connection, statements["tables/columns"], table)]
        uniques = await fetch(connection, statements["tables/uniques"], table)
        policies = await fetch(connection, statements["tables/policies"], table) if place.guarded else None
    return Found(
        spec,
        place.schema,
        place.name,
        {column.name: column for column in columns},
        place.kind == "p",
        place.oid,
        f"{place.schema_quoted}.{place.name_quoted}",
        tuple(Unique(index, tuple(covered), flaw) for index, covered, flaw in uniques),
        place.role,
        place.deletable,
        None if policies is None else tuple(Policy(*row) for row in policies),
        place.triggered,
        sign,
    )


class _Place(NamedTuple):
    """The fields are the columns of `tables/find.sql`."""

    oid: int
    schema: str
    name: str
    schema_quoted: str
    name_quoted: str
    kind: str  # as in pg_class.relkind
    temporary: bool
    inherited: bool
    role: str
    usable: bool  # the schema, by this role
    deletable: bool  # rows, by this role
    elsewhere: str | None  # a partition that is a foreign table
    rules: str | None
    guarded: bool  # by row-level security
    triggered: bool


def _check_place(spec: TableSpec, who: str | None, place: _Place) -> None:
    """Raises ConfigError for a table whose rows cannot be claimed."""
    if place.kind in CANNOT_BE_CLAIMED or place.temporary:
        raise wrong(spec, who, CANNOT_BE_CLAIMED.get(place.kind, TEMPORARY))
    if place.inherited:
        raise wrong(spec, who, INHERITED)
    if place.elsewhere is not None:
        raise wrong(spec, who, FOREIGN_PARTITION.format(place.elsewhere))
    if place.rules is not None:
        raise wrong(spec, who, RULES.format(place.rules))
    if not place.usable:
        raise wrong(spec, who, _closed(place.schema_quoted, place.role))


def _closed(schema: str, role: str) -> str:
    return f"the role {role} may not use the schema {schema}; run: GRANT USAGE ON SCHEMA {schema} TO {role}"


def signed(spec: TableSpec) -> dict[str, str | None]:
    """The parameters of a statement that asks for a table's sign."""
    return {"table_schema": spec.schema, "table_name": spec.name}


async def sign(database: Database, statements: Statements, spec: TableSpec) -> int | None:
    """The fingerprint of a table now. None when there is no such table."""
    ((value,),) = await database.fetch(statements["tables/sign"], signed(spec))
    return None if value is None else int(value)


def wrong(table: Found | TableSpec, who: str | None, text: str) -> ConfigError:
    place = str(table) if isinstance(table, TableSpec) else f"{table.schema}.{table.name}"
    return ConfigError(f"{'' if who is None else f'{who}: '}table {place!r}: {text}")


def _no_table(
    spec: TableSpec, database: str, search_path: str, schemas: Collection[str], tables: Collection[tuple[str, str]]
) -> str:
    if spec.schema is not None and spec.schema not in schemas and not spec.schema.startswith("pg_temp"):
        dotted = 'if a name contains a dot, give a pair, ("schema", "table")'
        return f"there is no schema {spec.schema!r} in database {database!r}{meant(spec.schema, schemas)}; {dotted}"
    elsewhere = [schema for schema, name in tables if name == spec.name]
    real = [schema for schema in elsewhere if not schema.startswith("pg_temp")]
    if spec.schema == "pg_temp" or (elsewhere and not real):
        return TEMPORARY
    place = f"search_path is {search_path}" if spec.schema is None else f"in schema {spec.schema!r}"
    said = f"there is no such table in database {database!r} ({place})"
    if real:
        there = " or ".join(repr(f"{schema}.{spec.name}") for schema in real)
        return f"{said}; did you mean {there}?"
    near = [name for schema, name in tables if spec.schema in (None, schema)]
    advice = "create it before the worker starts, or check which database TRUEUP_DATABASE_URL points to"
    return f"{said}{meant(spec.name, near) or f'; {advice}'}"


def no_column(found: Found, said: str, name: str) -> str:
    listed = list(found.columns)
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    has = f"it has {', '.join(listed[:MAX_LISTED])}{more}" if listed else "it has no columns"
    return f"{said}: there is no such column{meant(name, listed)}; {has}"


def meant(name: str, among: Iterable[str]) -> str:
    """The name that was probably meant. Case does not count, because most mistakes are about case."""
    folded: dict[str, str] = {}
    for other in among:
        folded.setdefault(other.casefold(), other)
    near = difflib.get_close_matches(name.casefold(), folded, n=3)
    return f"; did you mean {' or '.join(repr(folded[other]) for other in near)}?" if near else ""


def _column(
    name: str,
    type_: str,
    category: str,
    not_null: bool,
    generated: bool,
    labels: Iterable[str],
    *rest: Any,
) -> Column:
    return Column(name, type_, category, not_null, generated, tuple(labels), *rest)


COMMANDS = {"r": "SELECT", "w": "UPDATE", "d": "DELETE"}
ALL = "*"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that applies to the worker's role. Field order is that of `tables/policies.sql`."""

    name: str  # quoted where it has to be
    command: str  # r, a, w, d or * for all
    permissive: bool  # one of these is enough; of the others, all have to agree
    meant: bool  # for this role


def why_hidden(policies: Collection[Policy], table: str, role: str, *, deletes: bool) -> str | None:
    """Why this role may not find rows, or not lock, change or delete them; and what to do. None when it may.

    PostgreSQL does not report that a policy hides a row, and a sweep that cannot see rows would silently find nothing to do, forever.
    So policies that apply to the worker's role must have been made for it: they name it, with any condition, or have no condition.
    A policy for all roles usually depends on a setting of the session (the current tenant) that no worker has.
    """
    needed = ("r", "w", "d") if deletes else ("r", "w")  # to lock a row is to update it, for a policy
    asked = {command: [each for each in policies if each.command in (command, ALL)] for command in needed}
    way_out = f"ALTER ROLE {role} BYPASSRLS"
    for each in chain.from_iterable(asked.values()):
        if not each.permissive and not each.meant:
            return (
                f"row-level security applies to the role {role}, and the restrictive policy {each.name} applies to every role: "
                f"it would silently hide rows; run: ALTER POLICY {each.name} ON {table} TO … with the roles it "
                f"is meant for, or: {way_out}"
            )
    closed = [command for command in needed if not any(each.permissive and each.meant for each in asked[command])]
    if not closed:
        return None
    others = dict.fromkeys(each.name for command in closed for each in asked[command] if each.permissive)
    there = f" ({', '.join(others)}: for every role, with a condition)" if others else ""
    return (
        f"row-level security applies to the role {role}, and no policy for {', '.join(COMMANDS[command] for command in closed)} "
        f"names it{there}: all rows would be hidden; run: CREATE POLICY trueup ON {table} TO {role} USING (true), or: {way_out}"
    )
