"""Somebody who may create operators and functions in a schema on the search path can plant them for types that PostgreSQL has no
exact match for. No statement of ours means one of those, whoever's connection it is sent on."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.store.rows_desk import RowsDesk, desk_on
from tests.support import round_trips
from tests.support.database import TestServer
from tests.support.majors import MajorServer
from tests.support.memory import in_memory
from tests.support.shadows import Shadowed, plant, shadowed
from trueup import App
from trueup.store.db.load import Statements, names, qualified, source
from trueup.store.db.message import numbered
from trueup.store.db.migrate import Migrator
from trueup.store.rows.compose import Choice

pytestmark = pytest.mark.slow

# Of columns whose types have no operators of their own: those of another type, or of any, are used for them.
OTHER_TYPES = """
create type mood as enum ('calm', 'moved', 'gone');
create domain moment as timestamptz;
create table moods (
  id varchar(40), part text[], at timestamptz, mood mood not null default 'calm', changed_at moment not null default now() - interval '1 d',
  owner varchar(100), until timestamptz, version smallint, primary key (id, part, at)
);
insert into moods (id, part, at) select 'n' || n, array['a', 'b'], now() from generate_series(1, 5) as n;
create table bytes (id bytea primary key, state bpchar(10) not null, changed_at timestamp not null default now() - interval '1 d');
insert into bytes select decode(lpad(n::text, 4, '0'), 'hex'), 'open' from generate_series(1, 5) as n;
create table across (id varchar(9) primary key, state varchar(9) not null, changed_at timestamptz not null) partition by hash (id);
create table across_all partition of across for values with (modulus 1, remainder 0);
insert into across select n::text, 'open', now() - interval '1 d' from generate_series(1, 5) as n;
"""
# Neither has operators or functions in it: they cannot be prepared.
COMMANDS = {
    "jobs/copy",
    "migrations/begin",
    "session/release",
    "session/roll_back",
    "session/savepoint",
    "testing/clear",
}
COMPOSED = re.compile(r"\{(day|rest|table|milliseconds|parent|lock|branches|values)\}")
OF_NUMBERS = re.compile(r"\((?:bigint|integer|smallint|numeric|double precision|real|oid|,)+\)")


@pytest.fixture(scope="module")
def shadows(server: TestServer) -> Iterator[Shadowed]:
    with shadowed(server, round_trips.TABLES + OTHER_TYPES) as shadows:
        yield shadows


def test_a_planted_operator_is_noticed(shadows: Shadowed) -> None:
    """The tests below could not fail otherwise."""
    with psycopg.connect(shadows.url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 'a'::text || 1.5")
        for planted in (
            "'a'::text || 1.5",
            "count(1)",
            "1 = any(array[1.5::float4])",
        ):
            assert shadows.meant(connection, f"select {planted}"), planted
        assert not shadows.meant(connection, "select pg_catalog.count(1), 1 + 1")


def test_no_statement_means_what_was_planted(shadows: Shadowed) -> None:
    statements = Statements("trueup")
    with psycopg.connect(shadows.url, autocommit=True) as connection:
        fixed = [name for name in names() if name not in COMMANDS and not COMPOSED.search(source(name))]
        meant = {name: every_meaning(shadows, connection, statements[name]) for name in fixed}
    assert len(meant) > 100
    assert {name: planted for name, planted in meant.items() if planted} == {}


def every_meaning(shadows: Shadowed, connection: psycopg.Connection[Any], statement: bytes) -> set[str]:
    """The shadows that a statement would call, with a number for each parameter that can be one."""
    query, parameters = numbered(statement)
    unknown = ["unknown"] * len(parameters)
    meant = shadows.meant(connection, query.decode(), unknown)
    for n, name in enumerate(parameters):
        if not re.search(rf"%\({name}\)s(?!::)".encode(), statement):
            continue  # its type is given
        try:
            planted = shadows.meant(connection, query.decode(), [*unknown[:n], "integer", *unknown[n + 1 :]])
        except psycopg.Error:
            continue  # it is no number
        # A number is never given where a text or a moment is wanted.
        meant |= {each for each in planted if OF_NUMBERS.search(each)}
    return meant


@pytest.mark.asyncio
async def test_nothing_planted_is_called_from_the_first_enqueue_to_the_last_sweep(shadows: Shadowed) -> None:
    shadows.look_from_here()
    await round_trips.everything(shadows.url)
    assert len(list(shadows.statements())) > 500
    assert shadows.called() == {}


@pytest.mark.asyncio
@pytest.mark.parametrize("claim", ["lease", "row_lock"])
async def test_statements_over_users_tables_mean_the_operators_of_their_columns_types(
    shadows: Shadowed, claim: str
) -> None:
    app = App(shadows.url)
    store = await app.open()
    async with desk_on(store) as desk:
        for composed in await every_statement(desk, claim):
            query, parameters = numbered(composed)
            with psycopg.connect(shadows.url, autocommit=True) as connection:
                assert shadows.meant(connection, query.decode(), ["unknown"] * len(parameters)) == set(), query.decode()
    await app.close()


async def every_statement(desk: RowsDesk, claim: str) -> list[bytes]:
    moods: dict[str, Any] = {"table": "moods", "key": ("id", "part", "at"), "state": "mood"}
    bytes_: dict[str, Any] = {"table": "bytes"}
    stale = {"stale_for": "1h"}
    own = {"changed_at": "changed_at", "lease_columns": ("owner", "until")}
    found = []
    specs: list[tuple[dict[str, Any], tuple[str, ...], dict[str, Any]]] = [
        (moods, ("calm", "moved"), {"changed_at": "changed_at", "version": "version"}),
        (bytes_, ("open",), {"changed_at": "changed_at"}),
    ]
    if claim == "lease":
        specs.append((moods, ("calm",), own))
    for table, states, spec in specs:
        rows = await desk.rows(*states, **table, **stale, spec=spec, claim=claim)
        composer = rows.composer
        found += [composer.claim_fresh(place) for place in ("start", "with")]
        found += [
            composer.claim_again(),
            composer.change(()),
            composer.remove(),
            composer.forget(),
            composer.probe(),
            composer.probe("with"),
            composer.evaluate(),
            composer.readable(),
        ]
        guarded = replace(composer, guarded=True)
        found += [guarded.claim_fresh("start"), guarded.probe(), guarded.candidates("with"), guarded.waiting()]
        free = next(name for name in rows.found.columns if name not in (*rows.found.spec.key, rows.found.spec.state))
        found += [composer.change((free,)), composer.checkpoint((free,))]
        if claim == "row_lock":
            found += [composer.lock(), composer.locked_out(), composer.change_locked(()), composer.remove_locked()]
        found += [composer.waiting(), composer.listed(values=True)]
        if "lease_columns" in spec:
            found += [composer.renew_both(), composer.put_back(), composer.mark()]
    for table, state in ((moods, "calm"), (bytes_, "open"), ({"table": "across"}, "open")):
        spec = {"changed_at": "changed_at"}
        to = "gone" if state == "calm" else "shut"
        moving = (await desk.purges("move", state, **table, **stale, spec=spec, to=to)).composer
        deleting = (await desk.purges("delete", state, **table, **stale, spec=spec)).composer
        choices: list[Choice] = ["all", "passing", "keyed"]
        found += [moving.move(state, to, (), choice) for choice in choices]
        found += [deleting.delete(state, choice) for choice in choices]
        found += [moving.waiting(), moving.listed(), moving.share()]
        found += [moving.picked(state, after=after) for after in (False, True)]
        found += [moving.evaluate(state), replace(moving, guarded=True).share()]
    return found


@pytest.mark.parametrize("major", [14])
def test_migrations_are_not_misled(major: int) -> None:
    """On PostgreSQL 14 everybody may create in `public`, and migrations are often run by a superuser."""
    with (
        tempfile.TemporaryDirectory(prefix="trueup-pg-", dir=in_memory()) as directory,
        MajorServer(Path(directory) / "pg", major) as server,
        server.database(template="template1") as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        plant(connection)
        Migrator(connection, "trueup").migrate()
        script = Migrator(connection, "other").sql()
        connection.execute(script.encode())
        Migrator(connection, "other").check()


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("select now()", "select pg_catalog.now()"),
        ("select trueup.term_floor()", "select trueup.term_floor()"),
        ("select 'now()' -- now()", "select 'now()' -- now()"),
        ("from unnest(%(a)s::text[]) as m(now)", "from pg_catalog.unnest(%(a)s::text[]) as m(now)"),
        (
            "from unnest(%(a)s::text[], array(select 1)) as m(a, b)",
            "from unnest(%(a)s::text[], array(select 1)) as m(a, b)",
        ),
        ("from unnest({arrays}) as m({names})", "from unnest({arrays}) as m({names})"),
        ("where a in (select count(*) from b)", "where a in (select pg_catalog.count(*) from b)"),
        ("a operator(pg_catalog.=) b", "a operator(pg_catalog.=) b"),
    ],
)
def test_functions_are_sent_with_their_schema(written: str, sent: str) -> None:
    assert qualified(written) == sent
