"""Finds out whether a statement over a user's table has to read all of it, and which index would help.

Statements are planned and not run. A table without the index still works, it only gets slower as it grows, so this is for a warning; a
statement that cannot be planned at all is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection, errors

from trueup.errors import ConfigError
from trueup.store.db import message
from trueup.store.db.connect import is_away, may_pass
from trueup.store.db.load import source
from trueup.store.db.own_connection import fetch, milliseconds
from trueup.store.db.repository import Database
from trueup.store.rows.tables import Found

# How long to wait for a session that rebuilds the table: as long as outcomes of rows do. Other sessions queue behind this one meanwhile.
LOCK_WAIT = timedelta(seconds=1.5)
MANY = 10_000  # rows; fewer are read in a few milliseconds

Node = dict[str, Any]  # of a plan, as PostgreSQL writes it in JSON
Table = tuple[str, str]

PATIENCE = source("tables/patience").encode()
INSIST = source("tables/insist").encode()
SIZES = source("tables/sizes").encode()
PLACES = re.compile(rb"%\((\w+)\)s")
EXPLAIN = b"explain (format json, verbose) "  # verbose: nodes say the schema of their table
# The plan nodes that may be between a scan and the sort of its rows.
HANDING_ON = ("Append", "Merge Append", "Gather", "Gather Merge", "Result", "Subquery Scan")

# An index condition may contain functions only if they are immutable, which only PostgreSQL knows. A name with a dot may be an alias of
# the statement, and a comment would hide the closing bracket.
DOUBTFUL = re.compile(
    r"""(?<![\w"]) (?! (?:in|any|all|and|or|not|coalesce|nullif|lower|upper) \b ) [\w$]+ \s* \(  # a function
        | " \s* \(
        | :: | \|\| | \b (?:cast|select|interval|collate|at|(?:current|session|system)_\w+|user|localtime\w*) \b
        | [\w"] \s* \. \s* [A-Za-z_"]
        | -- | /\* | \$ | \b [eEuU]&?'""",
    re.VERBOSE | re.IGNORECASE,
)


async def unserved(
    database: Database,
    query: bytes,
    params: Mapping[str, Any],
    found: Found,
    *,
    timeout: timedelta,
    who: str | None = None,
) -> int | None:
    """How many rows of the table this statement scans because an index is missing, when those are many; else None.

    None also when the index is there but the planner prefers to read the table through (many rows of few are asked for), and when there is no plan within
    `timeout`, because another session rebuilds the table. Raises ConfigError when PostgreSQL refuses the statement, which it does
    because of what the user has given; `who` is the reconciler to name in it.
    """
    async with database.transaction() as connection:
        try:
            async with connection.transaction():  # a failure rolls back only this block
                await fetch(connection, PATIENCE, _patience(timeout))
                sizes = {
                    (schema, name): rows for schema, name, rows in await fetch(connection, SIZES, {"table": found.oid})
                }
                plan = await _explain(connection, query, params)
                scans = [node for node in _nodes(plan) if node["Node Type"] == "Seq Scan" and _table(node) in sizes]
                rows = sum(sizes[table] for table in {_table(scan) for scan in scans})
                if rows < MANY:
                    return None
                await fetch(connection, INSIST)
                return (
                    None
                    if _served(await _explain(connection, query, params), {scan["Alias"] for scan in scans})
                    else rows
                )
        except (errors.QueryCanceled, errors.LockNotAvailable):
            return None
        except psycopg.Error as error:
            if is_away(error) or may_pass(error):
                raise
            raise _refused(found, who, error) from None


async def try_every(
    database: Database, statements: Mapping[str, bytes], found: Found, *, timeout: timedelta, who: str | None = None
) -> None:
    """Have PostgreSQL plan each of these, by what they do. Raises ConfigError for the first that it refuses, and runs none.

    A temporary refusal, because another session rebuilds the table, is left to the first sweep.
    """
    for what, query in statements.items():
        values = dict.fromkeys(name.decode() for name in PLACES.findall(query))
        try:
            async with database.transaction() as connection:  # each has the time of a statement
                await fetch(connection, PATIENCE, _patience(timeout))
                await connection.execute(b"explain " + message.filled(connection, message.Query(query, values)))
        except (errors.QueryCanceled, errors.LockNotAvailable):
            return
        except psycopg.Error as error:
            if is_away(error) or may_pass(error):
                raise
            raise _refused(found, who, error, what) from None


def index_ddl(found: Found, *, state: bool, order: Sequence[str]) -> str:
    """The index for rows of one state in this order, as a statement to be run as it is; the key comes last, to end ties."""
    spec = found.spec
    first = (spec.state,) if state and spec.state is not None else ()
    columns = found.listed(dict.fromkeys((*first, *order, *spec.key)))
    where = (
        f" WHERE ({spec.where.strip()})" if spec.where is not None and not DOUBTFUL.search(_bare(spec.where)) else ""
    )
    if not found.partitioned:
        return f"CREATE INDEX CONCURRENTLY ON {found.quoted} ({columns}){where};"
    return (
        "-- Keeps writers waiting while it is built. To avoid that, first CREATE INDEX CONCURRENTLY, otherwise the same,\n"
        "-- on each partition: this statement then takes those over instead of building them.\n"
        f"CREATE INDEX ON {found.quoted} ({columns}){where};"
    )


def _patience(timeout: timedelta) -> dict[str, int]:
    least = timedelta(milliseconds=1)
    locked = milliseconds(max(min(timeout, LOCK_WAIT), least))["milliseconds"]
    return {**milliseconds(max(timeout, least)), "locked": locked}


async def _explain(connection: AsyncConnection[Any], query: bytes, params: Mapping[str, Any]) -> Node:
    ((answer,),) = await fetch(connection, EXPLAIN + query, params)
    plan: Node = answer[0]["Plan"]
    return plan


def _served(plan: Node, aliases: Collection[str]) -> bool:
    """Whether these parts of the statement walk an index from their first row, and in the requested order."""
    for node in _nodes(plan):
        if node.get("Alias") in aliases and node["Node Type"] == "Seq Scan":
            return False
        if node.get("Alias") in aliases and "Filter" in node and "Index Cond" not in node:
            return False  # the index gives the order, but it does not contain the condition
        if node["Node Type"] == "Sort" and any(below.get("Alias") in aliases for below in _sorted(node)):
            return False
    return True


def _nodes(plan: Node) -> Iterator[Node]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _sorted(node: Node) -> Iterator[Node]:
    """The scans whose rows go unchanged into a sort."""
    for child in node.get("Plans", ()):
        if child["Parent Relationship"] not in ("Outer", "Member", "Subquery"):
            continue  # common table expressions hang below the top node of any type
        if child["Node Type"] in HANDING_ON:
            yield from _sorted(child)
        else:
            yield child


def _table(node: Node) -> Table:
    return node.get("Schema", ""), node.get("Relation Name", "")


def _bare(where: str) -> str:
    """A condition without its quoted texts."""
    return re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", lambda found: found[0][0] * 2, where)


def _refused(found: Found, who: str | None, error: psycopg.Error, what: str = "look for its rows") -> ConfigError:
    said = error.diag.message_primary or str(error).strip()
    hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
    where = "" if found.spec.where is None else f"; look at where={found.spec.where!r}"
    do = ""
    if isinstance(error, errors.InsufficientPrivilege):
        do = f"; GRANT SELECT, UPDATE, DELETE ON {found.quoted} TO {found.role}, or those of them that it needs"
    elif isinstance(error, errors.UndefinedFunction):
        do = "; a column for selecting, ordering or comparing rows has a type without the needed operators: name another column"
    name = "" if who is None else f"{who}: "
    return ConfigError(
        f"{name}table {found.schema + '.' + found.name!r}: PostgreSQL refuses to {what}: {said}{hint}{where}{do}"
    )
