"""A user's table as it really is, inspected when a worker starts; and whether a reconciler can work on it.

Everything that would otherwise fail at the first sweep, or worse, silently do something else, is refused here. The error says
what exists instead and what to do. What cannot be seen in the catalog (a wrong `where=`) is found by explaining the statement, see
`guard.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from trueup.errors import ConfigError
from trueup.reconcile.table import TableSpec
from trueup.store.db.load import Statements
from trueup.store.db.own_connection import fetch
from trueup.store.db.repository import Database
from trueup.store.rows.row_security import Policy, why_hidden

CANNOT_BE_CLAIMED = {
    "v": "is a view: its rows cannot be claimed; name the table under it",
    "m": "is a materialized view: its rows cannot be changed; name the table under it",
    "f": "is a foreign table: its rows are in another database; give that one an App of its own",
    "i": "is an index; name its table",
    "I": "is an index; name its table",
    "S": "is a sequence; name a table",
    "c": "is a composite type; name a table",
    "t": "is a TOAST table; name the table it belongs to",
}
TEMPORARY = (
    "is a temporary table: workers have many sessions, and only the one that made it sees its rows; make it a real one"
)
INHERITED = (
    "has tables that inherit from it: a unique index does not reach into those, so a key may be there twice; "
    "partition it instead, or name one of them"
)
FOREIGN_PARTITION = (
    "its partition {} is a foreign table: rows of it are in another database and cannot be claimed; detach it, or name the "
    "partitions that are here, each as a table of its own"
)
RULES = (
    "has rules for UPDATE or DELETE ({}): PostgreSQL rewrites statements by them, so that rows could not be claimed or would silently "
    "stay; make triggers of them, and DROP RULE"
)
STATES = ("text", "int", "enum")
MOMENTS = ("timestamptz", "timestamp")
BITS = {"smallint": 16, "integer": 32, "bigint": 64}
OWNER_LENGTH = 56  # what claims write into the user's own lease column: host, pid and term
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
    operators: str | None = (
        "pg_catalog"  # the schema of those that compare its values, quoted; None: wherever they are found
    )


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index; `flaw` is why it does not make its columns a key."""

    name: str
    columns: tuple[str, ...]
    flaw: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """A table as it was when it was looked at."""

    spec: TableSpec
    schema: str  # where it really is
    name: str
    columns: Mapping[str, Column]  # in table order
    partitioned: bool
    oid: int
    quoted: str  # schema and name for people: quoted only where it has to be
    uniques: tuple[Unique, ...]
    role: str  # who we are, quoted likewise
    deletable: bool  # by this role
    policies: tuple[Policy, ...] | None = None  # that apply to this role; None when row-level security does not
    sign: int | None = None  # another one means that the table is no longer what it was

    @property
    def counted(self) -> int | None:
        """The table for which PostgreSQL counts the rows that are written; partitions are counted each for itself."""
        return None if self.partitioned else self.oid

    def type(self, column: str) -> str:
        """Raises ConfigError when there is no such column."""
        if column not in self.columns:
            raise _wrong(self, None, _no_column(self, f"column {column!r}", column))
        return self.columns[column].type

    @property
    def identifier(self) -> sql.Identifier:
        return named(self.schema, self.name)

    def listed(self, columns: Iterable[str]) -> str:
        """For DDL that people read."""
        return ", ".join(self.columns[column].quoted for column in columns)


def named(*parts: str) -> sql.Identifier:
    """An identifier for a statement that has parameters: in one, psycopg takes a `%` for the start of a placeholder."""
    return sql.Identifier(*(part.replace("%", "%%") for part in parts))


async def find(database: Database, statements: Statements, spec: TableSpec, who: str | None = None) -> Found:
    """Look at a table. Raises ConfigError when the name stands for nothing, or for something that is no table.

    `who` is the reconciler to name in the error ("reconciler 'x'"). Whether the columns are as declared is for `check`.
    """
    async with database.transaction() as connection:  # one session: the search_path stays the same
        asked = {"schema": spec.schema, "name": spec.name}
        # First of all: what changes while the rest is read is then noticed the next time.
        ((sign,),) = await fetch(connection, statements["tables/sign"], signed(spec))
        places = await fetch(connection, statements["tables/find"], asked)
        if not places:
            ((at, path, schemas, tables),) = await fetch(connection, statements["tables/around"], asked)
            raise _wrong(spec, who, _no_table(spec, at, path, schemas, [(schema, name) for schema, name in tables]))
        (place,) = places
        oid, schema, name, schema_quoted, name_quoted, kind, temporary, inherited, *ours, elsewhere, rules, guarded = (
            place
        )
        role, usable, deletable = ours
        if kind in CANNOT_BE_CLAIMED or temporary:
            raise _wrong(spec, who, CANNOT_BE_CLAIMED.get(kind, TEMPORARY))
        if inherited:
            raise _wrong(spec, who, INHERITED)
        if elsewhere is not None:
            raise _wrong(spec, who, FOREIGN_PARTITION.format(elsewhere))
        if rules is not None:
            raise _wrong(spec, who, RULES.format(rules))
        if not usable:
            grant = f"GRANT USAGE ON SCHEMA {schema_quoted} TO {role}"
            raise _wrong(spec, who, f"the role {role} may not use the schema {schema!r}; run: {grant}")
        columns = [_column(*row) for row in await fetch(connection, statements["tables/columns"], {"table": oid})]
        uniques = await fetch(connection, statements["tables/uniques"], {"table": oid})
        policies = await fetch(connection, statements["tables/policies"], {"table": oid}) if guarded else None
    return Found(
        spec,
        schema,
        name,
        {column.name: column for column in columns},
        kind == "p",
        oid,
        f"{schema_quoted}.{name_quoted}",
        tuple(Unique(index, tuple(covered), flaw) for index, covered, flaw in uniques),
        role,
        deletable,
        None if policies is None else tuple(Policy(*row) for row in policies),
        sign,
    )


def signed(spec: TableSpec) -> dict[str, str | None]:
    """The parameters of a statement that asks for a table's sign."""
    return {"table_schema": spec.schema, "table_name": spec.name}


async def sign(database: Database, statements: Statements, spec: TableSpec) -> int | None:
    """As in `Found`, now. None when there is no such table."""
    ((value,),) = await database.fetch(statements["tables/sign"], signed(spec))
    return None if value is None else int(value)


def check(
    found: Found,
    who: str,
    *,
    states: Collection[str] = (),
    stale_for: bool = False,
    due_at: str | None = None,
    order_by: str | None = None,
    claimed_as: str | None = None,
    also: Collection[str] = (),
    deletes: bool = False,
    moves_to: Collection[str] = (),
    reads: Collection[str] = (),
) -> None:
    """Raise ConfigError unless `who` (as messages name it: "reconciler 'x'") can work on this table as it is declared.

    `states` are those it looks for, `moves_to` and `claimed_as` those it sets. `also` are further columns that it writes,
    `reads` further ones that it reads. With `deletes` it deletes rows and does nothing else, so nothing has to be writable.
    """
    spec = found.spec
    ours = [("state", spec.state), ("changed_at", spec.changed_at), ("version", spec.version)]
    ours += [("lease_columns", column) for column in spec.lease_columns or ()]
    written = [(role, column) for role, column in ours if column is not None]
    read = [*(("key", column) for column in spec.key), *written]
    read += [(role, column) for role, column in (("due_at", due_at), ("order_by", order_by)) if column is not None]
    for role, column in (*read, *(("column", column) for column in (*also, *reads))):
        if column not in found.columns:
            raise _wrong(found, who, _no_column(found, f"{role}={column!r}", column))
    _check_types(found, who, due_at)
    _check_key(found, who)
    if stale_for and spec.changed_at is None:
        raise _wrong(found, who, "stale_for= needs the time of a row's last change; name its column: changed_at=…")
    _check_states(found, who, [*states, *([] if claimed_as is None else [claimed_as]), *moves_to])
    setting = [] if deletes else [*written, *(("column", column) for column in also)]
    _check_writing(found, who, setting)
    _check_privileges(found, who, [*(column for _, column in read), *reads], [column for _, column in setting], deletes)
    if found.policies is not None:
        hidden = why_hidden(found.policies, found.quoted, found.role, deletes=deletes)
        if hidden is not None:
            raise _wrong(found, who, hidden)


def _check_types(found: Found, who: str, due_at: str | None) -> None:
    spec = found.spec
    owner, until = spec.lease_columns or (None, None)
    needed = (
        ("state", spec.state, STATES, "text, a whole number or an enum"),
        ("changed_at", spec.changed_at, MOMENTS, "timestamp with time zone (or without: then it is taken as UTC)"),
        ("due_at", due_at, MOMENTS, "timestamp with time zone (or without: then it is taken as UTC)"),
        ("version", spec.version, ("int",), "smallint, integer or bigint"),
        ("lease_columns: owner", owner, ("text",), "text"),
        ("lease_columns: until", until, ("timestamptz",), "timestamp with time zone"),
    )
    for role, name, categories, wanted in needed:
        if name is not None and found.columns[name].category not in categories:
            column = found.columns[name]
            fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {column.quoted} TYPE …, or name another column"
            raise _wrong(found, who, f"{role}={name!r} is of type {column.type}; needed is {wanted}: {fix}")
    for name in spec.lease_columns or ():
        if found.columns[name].not_null:
            fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {found.columns[name].quoted} DROP NOT NULL"
            raise _wrong(
                found, who, f"lease_columns: {name!r} is NOT NULL, but it must be NULL in rows without a holder: {fix}"
            )
    if owner is not None and (found.columns[owner].length or OWNER_LENGTH) < OWNER_LENGTH:
        fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {found.columns[owner].quoted} TYPE text"
        raise _wrong(
            found,
            who,
            f"lease_columns: {owner!r} is too short for the name of a holder ({OWNER_LENGTH} characters): {fix}",
        )


def naive_timestamps(found: Found, due_at: str | None) -> list[tuple[str, str]]:
    """Columns without a time zone that say when a row is due or stale, each with the statement that gives it one."""
    used = dict.fromkeys(name for name in (found.spec.changed_at, due_at) if name is not None)
    columns = [found.columns[name] for name in used if found.columns[name].category == "timestamp"]
    return [
        (
            column.name,
            f"ALTER TABLE {found.quoted} ALTER COLUMN {column.quoted} TYPE timestamptz "
            f"USING {column.quoted} AT TIME ZONE 'UTC' (or the zone that its values were written in)",
        )
        for column in columns
    ]


def _check_key(found: Found, who: str) -> None:
    key = found.spec.key
    shown = _shown_key(key)
    good = [unique for unique in found.uniques if unique.flaw is None]
    if not any(set(unique.columns) <= set(key) for unique in good):
        said = [f"key={shown} is not unique, so one claim could take two rows"]
        said += [
            f"the unique index {unique.name!r} {unique.flaw}, so it does not count"
            for unique in found.uniques
            if unique.flaw is not None and set(unique.columns) <= set(key)
        ]
        said += [f"key={_shown_key(unique.columns)} would be unique" for unique in good]
        if found.partitioned:
            said.append(
                "a unique index of a partitioned table has to have the columns it is partitioned by, and so must the key"
            )
        else:
            said.append(
                f"to make key={shown} unique: CREATE UNIQUE INDEX CONCURRENTLY ON {found.quoted} ({found.listed(key)})"
            )
        raise _wrong(found, who, "; ".join(said))
    for name in key:
        if not found.columns[name].not_null:
            fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {found.columns[name].quoted} SET NOT NULL"
            raise _wrong(
                found, who, f"key={shown}: {name!r} may be NULL, and rows without a key cannot be told apart: {fix}"
            )


def _check_states(found: Found, who: str, states: Iterable[str]) -> None:
    for state in states:
        if found.spec.state is None:
            raise _wrong(found, who, f"state {state!r} is given, but not which column has it: state=…")
        column = found.columns[found.spec.state]
        why = _not_a_state(column, state)
        if why is not None:
            raise _wrong(found, who, f"state {state!r} cannot be in {column.name!r} ({column.type}): {why}")


def _not_a_state(column: Column, state: str) -> str | None:
    if column.category == "enum" and state not in column.labels:
        return f"it has {', '.join(column.labels)}{_meant(state, column.labels)}"
    if column.category == "int":
        # As int() alone would have it, "1_000" and " 7" are numbers too.
        if not re.fullmatch(r"0|-?[1-9][0-9]*", state, re.ASCII):
            return "it is not a whole number"
        most = 2 ** (BITS[column.type] - 1)
        if len(state) > 20 or not -most <= int(state) < most:
            return f"it is not between {-most} and {most - 1}"
    if column.category == "text" and column.length is not None and len(state) > column.length:
        return f"only {column.length} characters fit"
    return None


def _check_writing(found: Found, who: str, written: Collection[tuple[str, str]]) -> None:
    for role, name in written:
        if found.columns[name].generated:
            raise _wrong(
                found, who, f"{role}={name!r} is generated by PostgreSQL and cannot be written; name a plain column"
            )


def _check_privileges(found: Found, who: str, read: Collection[str], written: Collection[str], deletes: bool) -> None:
    columns = found.columns.values()
    unread = [name for name in dict.fromkeys(read) if not found.columns[name].readable]
    unwritten = [name for name in dict.fromkeys(written) if not found.columns[name].writable]
    if not unwritten and not any(column.writable for column in columns):
        unwritten = list(found.spec.key)  # locking a row needs the right to update something of it
    grants = []
    if unread:
        grants.append(f"SELECT ({found.listed(unread)})" if any(column.readable for column in columns) else "SELECT")
    if unwritten:
        grants.append(f"UPDATE ({found.listed(unwritten)})" if any(column.writable for column in columns) else "UPDATE")
    if deletes and not found.deletable:
        grants.append("DELETE")
    if grants:
        rights = ", ".join(grants)
        grant = f"GRANT {rights} ON {found.quoted} TO {found.role}"
        raise _wrong(found, who, f"the role {found.role} lacks the right to {rights}; run: {grant}")


def _wrong(table: Found | TableSpec, who: str | None, text: str) -> ConfigError:
    place = str(table) if isinstance(table, TableSpec) else f"{table.schema}.{table.name}"
    return ConfigError(f"{'' if who is None else f'{who}: '}table {place!r}: {text}")


def _no_table(
    spec: TableSpec, database: str, search_path: str, schemas: Collection[str], tables: Collection[tuple[str, str]]
) -> str:
    if spec.schema is not None and spec.schema not in schemas and not spec.schema.startswith("pg_temp"):
        dotted = 'a name that has a dot in it is given as a pair, ("schema", "table")'
        return f"there is no schema {spec.schema!r} in database {database!r}{_meant(spec.schema, schemas)}; {dotted}"
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
    advice = "create it before the worker starts, or check which database TRUEUP_DATABASE_URL leads to"
    return f"{said}{_meant(spec.name, near) or f'; {advice}'}"


def _no_column(found: Found, said: str, name: str) -> str:
    listed = list(found.columns)
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    has = f"it has {', '.join(listed[:MAX_LISTED])}{more}" if listed else "it has no columns"
    return f"{said}: there is no such column{_meant(name, listed)}; {has}"


def _meant(name: str, among: Iterable[str]) -> str:
    """Case is what most mistakes are about, so it does not count here."""
    folded: dict[str, str] = {}
    for other in among:
        folded.setdefault(other.casefold(), other)
    near = difflib.get_close_matches(name.casefold(), folded, n=3)
    return f"; did you mean {' or '.join(repr(folded[other]) for other in near)}?" if near else ""


def _shown_key(columns: tuple[str, ...]) -> str:
    return repr(columns[0] if len(columns) == 1 else columns)


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
