"""Whether a reconciler, a move or a deletion can work on a table as it is.

Everything that would otherwise fail at the first sweep, or worse, silently do something else, is refused here. The error says
what exists instead and what to do. What cannot be seen in the catalog (a wrong `where=`) is found by explaining the statement, see
`guard.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from trueup.store.rows.tables import Column, Found, meant, no_column, why_hidden, wrong

STATES = ("text", "int", "enum")
MOMENTS = ("timestamptz", "timestamp")
BITS = {"smallint": 16, "integer": 32, "bigint": 64}
OWNER_LENGTH = 56  # what claims write into the user's own lease column: host, pid and term


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
            raise wrong(found, who, no_column(found, f"{role}={column!r}", column))
    _check_types(found, who, due_at)
    _check_key(found, who)
    if stale_for and spec.changed_at is None:
        raise wrong(found, who, "stale_for= needs the time of a row's last change; name its column: changed_at=…")
    _check_states(found, who, [*states, *([] if claimed_as is None else [claimed_as]), *moves_to])
    setting = [] if deletes else [*written, *(("column", column) for column in also)]
    _check_writing(found, who, setting)
    _check_privileges(found, who, [*(column for _, column in read), *reads], [column for _, column in setting], deletes)
    if found.policies is not None:
        hidden = why_hidden(found.policies, found.quoted, found.role, deletes=deletes)
        if hidden is not None:
            raise wrong(found, who, hidden)


def _check_types(found: Found, who: str, due_at: str | None) -> None:
    spec = found.spec
    owner, until = spec.lease_columns or (None, None)
    needed = (
        ("state", spec.state, STATES, "text, a whole number or an enum"),
        ("changed_at", spec.changed_at, MOMENTS, "timestamp with time zone (or without: then it is read as UTC)"),
        ("due_at", due_at, MOMENTS, "timestamp with time zone (or without: then it is read as UTC)"),
        ("version", spec.version, ("int",), "smallint, integer or bigint"),
        ("lease_columns: owner", owner, ("text",), "text"),
        ("lease_columns: until", until, ("timestamptz",), "timestamp with time zone"),
    )
    for role, name, categories, wanted in needed:
        if name is not None and found.columns[name].category not in categories:
            column = found.columns[name]
            fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {column.quoted} TYPE …, or name another column"
            raise wrong(found, who, f"{role}={name!r} is of type {column.type}; needed is {wanted}: {fix}")
    for name in spec.lease_columns or ():
        if found.columns[name].not_null:
            fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {found.columns[name].quoted} DROP NOT NULL"
            raise wrong(
                found, who, f"lease_columns: {name!r} is NOT NULL, but it must be NULL in rows without a holder: {fix}"
            )
    if owner is not None and (found.columns[owner].length or OWNER_LENGTH) < OWNER_LENGTH:
        fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {found.columns[owner].quoted} TYPE text"
        raise wrong(
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
        raise wrong(found, who, "; ".join(said))
    for name in key:
        if not found.columns[name].not_null:
            fix = f"ALTER TABLE {found.quoted} ALTER COLUMN {found.columns[name].quoted} SET NOT NULL"
            raise wrong(
                found, who, f"key={shown}: {name!r} may be NULL, and rows without a key cannot be told apart: {fix}"
            )


def _check_states(found: Found, who: str, states: Iterable[str]) -> None:
    for state in states:
        if found.spec.state is None:
            raise wrong(found, who, f"state {state!r} is given, but the table was declared without state=")
        column = found.columns[found.spec.state]
        why = _not_a_state(column, state)
        if why is not None:
            raise wrong(found, who, f"state {state!r} cannot be in {column.name!r} ({column.type}): {why}")


def _not_a_state(column: Column, state: str) -> str | None:
    if column.category == "enum" and state not in column.labels:
        return f"it has {', '.join(column.labels)}{meant(state, column.labels)}"
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
            raise wrong(
                found, who, f"{role}={name!r} is generated by PostgreSQL and cannot be written; name an ordinary column"
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
        raise wrong(found, who, f"the role {found.role} lacks the privilege {rights}; run: {grant}")


def _shown_key(columns: tuple[str, ...]) -> str:
    return repr(columns[0] if len(columns) == 1 else columns)
