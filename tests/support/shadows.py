"""Operators and functions that somebody has planted in a schema on the search path, to be called instead of PostgreSQL's own.

PostgreSQL looks in `pg_catalog` first, but prefers what takes exactly the given types: `public.||(text, numeric)` comes before
`pg_catalog.||(text, anynonarray)`. Here every operator and function that a statement could mean is planted for every pair of
plain types that `pg_catalog` has no exact match for. None is ever called: the server is asked to log each statement as it has
understood it (`debug_print_parse`), so a shadow is found in statements that touch no row, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

import trueup.store
from tests.support.database import TestServer

TYPES = (
    *(
        "boolean",
        '"char"',
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "numeric",
        "oid",
        "regclass",
        "regtype",
        "tid",
        "xid",
    ),
    *("text", "varchar", "bpchar", "name", "uuid", "bytea", "timestamptz", "timestamp", "date", "time", "interval"),
    *(
        "jsonb",
        "json",
        "tstzrange",
        "tstzmultirange",
        "boolean[]",
        "text[]",
        "varchar[]",
        "name[]",
        "int2[]",
        "int4[]",
        "int8[]",
    ),
    *("float8[]", "timestamptz[]", "uuid[]", "tid[]", "oid[]"),
)
PLAIN_TEXT = re.compile(r"--[^\n]*|'(?:[^']|'')*'")  # what is no code in a statement


def _code() -> str:
    """All that can become part of a statement: the SQL files, and the texts of the modules that compose statements."""
    root = Path(trueup.store.__file__).parent
    modules = [path.read_text() for path in [*root.glob("rows/compose/*.py"), root / "db/load.py"]]
    statements = [path.read_text() for path in [*root.glob("sql/*/*.sql"), *root.glob("migrations/*.sql")]]
    return "\n".join([*modules, *(PLAIN_TEXT.sub("", statement) for statement in statements)])


# Those that syntax stands for (`in`, `like`, `is distinct from`) are among them.
OPERATORS = {*re.findall(r"(?<=\s)(?:[-+*/<>=~!@#%^&|?]|->)+(?=\s)", _code()), "=", "<>", "~~", "->", "->>", "-"}
FUNCTIONS = set(re.findall(r"\b([a-z_0-9]+)\(", _code()))

# Written into the catalogs directly: tens of thousands of `create operator` would take a minute.
# The first number is far from those that the server gives to what is made later.
PLANT = """
set local search_path = pg_catalog;
set local allow_system_table_mods = on;
create function public.planted() returns boolean language sql volatile as 'select 1 / 0 = 1';
create temp table plain on commit drop as
  select t::oid as type from unnest(%(types)s::regtype[]) as t
  union select oid from pg_type where typnamespace = 'public'::regnamespace and typtype in ('e', 'd');
create temp table signatures on commit drop as
  select 'planted'::name as name, array_to_string(array[a.type, b.type], ' ')::oidvector as args from plain as a, plain as b
  union
  select 'planted', a.type::text::oidvector from plain as a
  union
  -- each function that is used, with one of its arguments of another type, and those that may be of any type of each
  select p.proname, string_agg(case when u.place = n.place or u.type in (select oid from pg_type where typtype = 'p') then r.type else u.type end::text,
                               ' ' order by u.place)::oidvector
    from pg_proc as p, unnest(p.proargtypes::oid[]) with ordinality as u(type, place), generate_series(1, 4) as n(place), plain as r
   where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any(%(functions)s::text[]) and p.pronargs between n.place and 4
   group by p.oid, p.proname, n.place, r.type;
delete from signatures as s using pg_proc as p
 where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = s.name and p.proargtypes = s.args;
create temp table functions on commit drop as
  select 2000000000 + row_number() over () as oid, name, args, array_length(string_to_array(args::text, ' '), 1) as n from signatures;
insert into pg_proc (oid, proname, pronamespace, proowner, prolang, procost, prorows, provariadic, prosupport, prokind, prosecdef, proleakproof,
                     proisstrict, proretset, provolatile, proparallel, pronargs, pronargdefaults, prorettype, proargtypes, prosrc)
select f.oid, f.name, pronamespace, proowner, prolang, procost, prorows, provariadic, prosupport, prokind, prosecdef, proleakproof,
       proisstrict, proretset, provolatile, proparallel, f.n, pronargdefaults, prorettype, f.args, prosrc
  from pg_proc, functions as f where pg_proc.oid = 'public.planted()'::regprocedure;
insert into pg_operator (oid, oprname, oprnamespace, oprowner, oprkind, oprcanmerge, oprcanhash, oprleft, oprright, oprresult, oprcom, oprnegate,
                         oprcode, oprrest, oprjoin)
select 2100000000 + row_number() over (), o.name, 'public'::regnamespace, p.proowner, case when f.n = 2 then 'b' else 'l' end, false, false,
       f.a, f.b, 'boolean'::regtype, 0, 0, f.oid, 0, 0
  from (select oid, n, case when n = 2 then args[0] else 0 end as a, args[n - 1] as b from functions where name = 'planted') as f
  join unnest(%(operators)s::text[]) as o(name) on f.n = 2 or o.name = '-'
  join pg_proc as p on p.oid = 'public.planted()'::regprocedure
  left join pg_operator as x on x.oprnamespace = 'pg_catalog'::regnamespace and x.oprname = o.name and x.oprleft = f.a and x.oprright = f.b
 where x.oid is null;
create function public.make_interval(secs numeric) returns interval language sql as 'select null::interval';
create function public.make_interval(secs int4) returns interval language sql as 'select null::interval';
"""
PLANTED = """
select oid::int8, 'operator ' || oid::regoperator::text from pg_operator where oprnamespace = 'public'::regnamespace
union all select oid::int8, 'function ' || oid::regprocedure::text from pg_proc where pronamespace = 'public'::regnamespace
"""
_FOLLOWED = r"(.*\n(?:\t.*\n)*)"
LOGGED = re.compile(rf"LOG:  parse tree:\s*\n.*DETAIL:  {_FOLLOWED}(?:.*STATEMENT:  {_FOLLOWED})?")
MEANT = re.compile(r":(?:opno|funcid|aggfnoid|winfnoid|opnos\s+\(o)\s+(\d[\d\s]*)")  # broken into lines anywhere


class Shadowed:
    """A database full of shadows."""

    def __init__(self, server: TestServer, url: str, planted: dict[int, str]) -> None:
        self.url = url
        self._server = server
        self._planted = planted
        self.look_from_here()

    def look_from_here(self) -> None:
        """Forget the statements up to now."""
        self._since = self._server.cluster.log.stat().st_size

    def meant(self, connection: psycopg.Connection[Any], statement: str, types: Sequence[str] = ()) -> set[str]:
        """The shadows that a statement with parameters of these types would call. It is not executed."""
        trees: list[str] = []
        connection.execute("set client_min_messages = log")
        declared = f" ({', '.join(types)})" if types else ""

        def heard(notice: psycopg.errors.Diagnostic) -> None:
            trees.append(notice.message_detail or "")

        connection.add_notice_handler(heard)
        try:
            connection.execute(f"prepare looked_at{declared} as {statement}".encode())
        finally:
            connection.remove_notice_handler(heard)
        connection.execute("deallocate looked_at")
        assert trees, "the server has not said how it understood the statement"
        return self._found("".join(trees))

    def _found(self, tree: str) -> set[str]:
        oids = {int(oid) for found in MEANT.findall(tree) for oid in found.split()}
        return {self._planted[oid] for oid in oids if oid in self._planted}

    def statements(self) -> Iterator[tuple[str, set[str]]]:
        """Each statement that was parsed in a database with shadows so far, and the shadows that it would call."""
        with self._server.cluster.log.open("rb") as log:
            log.seek(self._since)
            text = log.read().decode(errors="replace")
        for tree, statement in LOGGED.findall(text):
            yield statement.replace("\n\t", "\n"), self._found(tree)

    def called(self) -> dict[str, set[str]]:
        return {statement: shadows for statement, shadows in self.statements() if shadows}


@contextmanager
def shadowed(server: TestServer, tables: str) -> Iterator[Shadowed]:
    with server.database() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(tables.encode())
        plant(connection)
        planted = dict(connection.execute(PLANTED).fetchall())
        name = sql.Identifier(connection.info.dbname)
        for setting in ("debug_print_parse = on", "debug_pretty_print = off", "log_min_error_statement = log"):
            connection.execute(sql.SQL("alter database {} set {}").format(name, sql.SQL(setting)))
        yield Shadowed(server, url, planted)


def plant(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction(), psycopg.ClientCursor(connection) as cursor:
        names = {
            "types": list(TYPES),
            "operators": sorted(OPERATORS),
            "functions": sorted(FUNCTIONS),
        }
        cursor.execute(PLANT.encode(), names)
