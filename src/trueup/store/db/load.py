"""Reads the statements: `sql/<noun>/<verb>.sql`, with the schema's name put in as a quoted identifier.

A statement is text with `%(name)s` parameters for values and `{schema}` for the schema. `{carried}` stands for the columns
a job takes along into the history (`sql/jobs/_carried.sql`), so that the five moves which finish a job cannot disagree;
`{matching}` for the conditions of a JobFilter (`sql/jobs/_matching.sql`);
`{priorities}` for the priorities of a lane that have a due job (`sql/jobs/_priorities.sql`), `{running}` for the condition that a job's kind is not paused (`sql/jobs/_running.sql`), `{named}` for the
condition that it is one of those that were named, if any were (`sql/jobs/_named.sql`), `{bytes}` for the size of a job's
arguments (`sql/jobs/_bytes.sql`) and `{taken}` for the claim of chosen jobs (`sql/lanes/_taken.sql`), which several claims
share; `{living}` for the declarations of living workers and `{todays_lane}` for the lane that
those want a job or schedule in (`sql/declarations/_….sql`); `{sign}` for the sign of a table (`sql/tables/_sign.sql`); `{now}` for the moment that decides and `{ended}` for the one
at which jobs end, which tests can set; `{rested}` for what becomes known about a row that is settled without being written to
(`sql/rows/_rested.sql`).

Calls of PostgreSQL's functions are sent with their schema, `pg_catalog.now()`. Without it, a function in another schema of the
search path that takes exactly the given types would come before one that takes any. Operators have no such short way: their
operands have exactly the types of one in `pg_catalog`, by casts where need be, or it is written `operator(pg_catalog.=)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from psycopg import sql

from trueup.clock import Clock, DatabaseClock

ROOT = files("trueup.store") / "sql"
SHARED = (
    ("jobs", "_matching"),
    ("jobs", "_priorities"),
    ("jobs", "_bytes"),
    ("jobs", "_running"),
    ("jobs", "_named"),
    ("lanes", "_taken"),
    ("rows", "_rested"),
    ("declarations", "_living"),
    ("declarations", "_todays_lane"),
    ("tables", "_sign"),
)
NOW = sql.SQL("coalesce(%(now)s::timestamptz, pg_catalog.now())")
# One moment for all rows of a statement, after what it had to wait for: a BRIN index is written to once for each greater value.
ENDED = sql.SQL("(select coalesce(%(now)s::timestamptz, pg_catalog.clock_timestamp()))")

NOTIFY, NOTHING = "pg_catalog.pg_notify(", "pg_catalog.textcat("

# What looks like a call and is none of a function: syntax, and functions that the grammar itself looks for in pg_catalog.
SYNTAX = frozenset(
    [
        "all",
        "and",
        "any",
        "array",
        "as",
        "by",
        "check",
        "coalesce",
        "conflict",
        "else",
        "exists",
        "extract",
        "filter",
        "from",
        "greatest",
        "in",
        "into",
        "key",
        "lateral",
        "least",
        "list",
        "materialized",
        "not",
        "nullif",
        "on",
        "operator",
        "or",
        "over",
        "partition",
        "range",
        "returns",
        "row",
        "select",
        "substring",
        "then",
        "to",
        "using",
        "values",
        "when",
        "where",
        "with",
    ]
)
_CALL = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "(?:[^"]|"")*"           # a comment, a text, a quoted name: as they are
        | (?<![\w.%]) (?: as \s+ | into \s+ )?  # names of columns follow an alias or a table
          ([a-z_][a-z_0-9]*) \(""",
    re.VERBOSE,
)


@cache
def source(name: str) -> str:
    """The text of `sql/<name>.sql`, with PostgreSQL's functions called by their full names."""
    return qualified((ROOT / f"{name}.sql").read_text(encoding="utf-8"))


def qualified(text: str) -> str:
    """A statement that calls each function of PostgreSQL with its schema. Functions of ours have theirs already."""

    def qualify(found: re.Match[str]) -> str:
        name = found[1]
        if name is None or name in SYNTAX or found[0] != f"{name}(":
            return found[0]
        if name == "unnest" and _several(text, found.end()):  # a form that the grammar knows by the bare name only
            return found[0]
        return f"pg_catalog.{found[0]}"

    return _CALL.sub(qualify, text)


def _several(text: str, start: int) -> bool:
    """Whether the arguments that begin here are more than one, as those are that are filled in later."""
    depth = 0
    if text[start] == "{":
        return True
    for character in text[start:]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth < 0:
            return False
        if depth == 0 and character == ",":
            return True
    return False


def names() -> Iterator[str]:
    """Every statement there is, as `noun/verb`."""
    for noun in sorted(ROOT.iterdir(), key=lambda entry: entry.name):
        for verb in sorted(noun.iterdir(), key=lambda entry: entry.name):
            if verb.name.endswith(".sql") and not verb.name.startswith("_"):
                yield f"{noun.name}/{verb.name.removesuffix('.sql')}"


def compose(text: str, schema: str, **names: sql.Composable) -> str:
    """Fill in the schema and further identifiers, quoted; values never go this way."""
    return sql.SQL(text).format(**_pieces(schema), **names).as_string(None)


@cache
def _pieces(schema: str) -> dict[str, sql.Composable]:
    """What every statement may have in it."""
    place = sql.Identifier(schema)
    carried = sql.SQL(source("jobs/_carried").strip())
    shared = {
        piece.removeprefix("_"): sql.SQL(source(f"{noun}/{piece}").strip()).format(schema=place, now=NOW)
        for noun, piece in SHARED
    }
    return {"schema": place, "carried": carried, "now": NOW, "ended": ENDED, **shared}


class Statements:
    """The statements of one schema, composed once a process."""

    def __init__(
        self,
        schema: str,
        *,
        clock: Clock = DatabaseClock(),  # noqa: B008 - it has no state
        aging: timedelta = timedelta(),
        notify: bool = True,
    ) -> None:
        """Without `notify` no statement sends a notification."""
        self.schema = schema
        self.clock = clock
        self.aging = aging
        self._notify = notify
        self.channel = f"trueup_{schema}"

    def shared(self) -> dict[str, Any]:
        """The values that many statements take; those that do not take them pass them over."""
        return {"now": self.clock.now(), "channel": self.channel, "aging": self.aging.total_seconds()}

    def __getitem__(self, name: str) -> bytes:
        return _composed(name, self.schema, self._notify)

    def compose(self, name: str, **names: sql.Composable) -> bytes:
        """A statement over tables whose names are made at run time (days of history)."""
        return _encoded(compose(source(name), self.schema, **names), self._notify)


@cache
def _composed(name: str, schema: str, notify: bool) -> bytes:
    return _encoded(compose(source(name), schema), notify)


def _encoded(text: str, notify: bool) -> bytes:
    """Without `notify`, a function of the same arguments that does nothing stands in for the one that notifies."""
    return (text if notify else text.replace(NOTIFY, NOTHING)).encode()
