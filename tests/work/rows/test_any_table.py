"""Random tables: shapes, types, names, triggers, constraints (checks, unique indexes, foreign keys both ways, deferred ones), partitions,
claim modes, `where=` that raises. Whatever the table, every row that was chosen ends done, or in quarantine with a reason, or untouched with a reason; and
nothing of the user's that the outcome does not name is overwritten.

Rows that a trigger keeps from a move or deletion have no record: such a sweep takes whole batches, and is told how many were kept, not
which. They are counted as `undone`, and that is checked.

`TRUEUP_FUZZ_SECONDS=600` looks for so long, at other tables each time.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from psycopg import sql

from trueup import App, Delete, Retry, Stay, To
from trueup.errors import ConfigError
from trueup.testing.clock import ManualClock
from trueup.testing.worker import ManualWorker

LONG = float(os.environ.pop("TRUEUP_FUZZ_SECONDS", "0"))  # an App would take it for a setting of its own
ROWS, ATTEMPTS = 10, 2
NAMES = [
    "id",
    "key",
    "order",
    "a b",
    "Größe",
    "50%",
    'quo"te',
    "select",
    "trueup_t1",
    "trueup_n",
    "trueup_seen",
    "trueup_c1",
    "t",
    "r",
    "term",
    "m",
    "seen",
    "k1",
    "x'y",
    "$1",
]
KEYS = {
    "int": "{n}",
    "bigint": "9000000000000000000 + {n}",
    "text": "'k {n} ''\"\\'",
    "varchar(40)": "repeat('ä', {n})",
    "uuid": "md5('{n}')::uuid",
    "timestamptz": "timestamptz '2020-01-01 00:00:00.123456+00' + {n} * interval '1 us'",
    "numeric": "{n}.50",
    "date": "date '2020-02-28' + {n}",
    "bytea": "decode(lpad('{n}', 4, '0'), 'hex')",
    "inet": "'10.0.0.{n}'::inet",
}
OTHERS = {
    "jsonb": ("'{\"a\": [1, null]}'", {"b": 2}),
    "int[]": ("array[1, null, 3]", [4]),
    "text": ("'pl\\ain %s {x}'", "é %(x)s"),
    "numeric(10,2)": ("1.50", 2),
    "boolean": ("false", True),
    "interval": ("interval '1 mon'", None),
    "double precision": ("'NaN'", 1.5),
    "point": ("'(1,2)'", None),
    "json": ("'{\"a\": 1}'", None),
    "tsrange": ("'[2020-01-01,infinity)'", None),
}
STATES = {"text": "'{}'", "varchar(9)": "'{}'", "mood": "'{}'::mood", "smallint": "{}"}
TRIGGERS = {
    "raises": "raise exception 'not this one' using errcode = '{code}';",
    "keeps": "return null;",
    "changes it": "new.{other} := null; return new;",
    "divides": "return (select new from (select 1 / 0) as x);",
}
CONSTRAINTS = ("none", "check", "deferred", "unique", "referred to", "referred to, deferred", "refers")


@dataclass(frozen=True)
class Shape:
    key: tuple[tuple[str, str], ...]
    state: tuple[str, str] | None
    changed_at: tuple[str, str] | None
    version: str | None
    other: tuple[str, str]
    mode: str
    does: str
    partitioned: bool
    trigger: str | None
    timing: str
    code: str
    constraint: str
    raises: bool  # whether `where=` raises for poisoned rows
    poison: frozenset[int]
    chosen: frozenset[int]
    first: int  # the column that the table begins with


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    names = draw(st.permutations(NAMES))
    pick = iter(names)
    types = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    mode = draw(st.sampled_from(["plain", "claimed_as", "lease_columns", "row_lock", "delete", "move"]))
    has_state = mode in ("claimed_as", "delete", "move") or draw(st.booleans())
    timed = mode in ("delete", "move") or draw(st.booleans())
    rows = st.frozensets(st.integers(1, ROWS), max_size=ROWS)
    return Shape(
        key=tuple((next(pick), each) for each in types),
        state=(next(pick), draw(st.sampled_from(sorted(STATES)))) if has_state else None,
        changed_at=(next(pick), draw(st.sampled_from(["timestamptz", "timestamp"]))) if timed else None,
        version=next(pick) if draw(st.booleans()) else None,
        other=(next(pick), draw(st.sampled_from(sorted(OTHERS)))),
        mode=mode,
        does=draw(st.sampled_from(["to", "stay", "delete", "nothing", "raise"])),
        partitioned=draw(st.booleans()),
        trigger=draw(st.sampled_from([None, *TRIGGERS])),
        timing=draw(st.sampled_from(["before", "after"])),
        code=draw(st.sampled_from(["P0001", "23514", "40001", "55P03", "53100", "57P01", "XX000"])),
        constraint=draw(st.sampled_from(CONSTRAINTS)),
        raises=draw(st.booleans()),
        poison=draw(rows),
        chosen=draw(rows),
        first=draw(st.integers(0, 9)),
    )


def name(text: str) -> str:
    return sql.Identifier(text).as_string(None)


def state_of(shape: Shape, which: str) -> str:
    assert shape.state is not None
    number = {"new": "1", "busy": "2", "done": "3", "other": "4"}[which]
    return number if shape.state[1] == "smallint" else which


def ddl(shape: Shape, now: str) -> list[str]:
    key = ", ".join(name(column) for column, _ in shape.key)
    columns = [f"{name(column)} {kind} not null" for column, kind in shape.key]
    pairs = [pair for pair in (shape.state, shape.changed_at, shape.other) if pair is not None]
    columns += [f"{name(column)} {kind.replace('mood', 'fuzz.mood')}" for column, kind in pairs]
    if shape.version is not None:
        columns.append(f"{name(shape.version)} int not null default 0")
    columns += ['"mine" boolean not null default false', '"owner!" text', '"until!" timestamptz', "n int"]
    first = shape.first % len(columns)
    columns = [*columns[first:], *columns[:first]]
    how = f" partition by hash ({name(shape.key[0][0])})" if shape.partitioned else ""
    made = [
        "drop schema if exists fuzz cascade",
        "create schema fuzz",
        "create type fuzz.mood as enum ('new', 'busy', 'done', 'other')",
        f'create table fuzz."Any %s table" ({", ".join(columns)}, primary key ({key})){how}',
    ]
    if shape.partitioned:
        made += [
            f'create table fuzz.p{n} partition of fuzz."Any %s table" for values with (modulus 2, remainder {n})'
            for n in (0, 1)
        ]
    for n in range(1, ROWS + 1):
        values: dict[str, str] = {column: KEYS[kind].format(n=n) for column, kind in shape.key}
        if shape.state is not None:
            values[shape.state[0]] = (
                STATES[shape.state[1]]
                .format(state_of(shape, "new" if n in shape.chosen else "other"))
                .replace("::mood", "::fuzz.mood")
            )
        if shape.changed_at is not None:
            values[shape.changed_at[0]] = f"(timestamptz '{now}' - interval '1 h')" + (
                " at time zone 'utc'" if shape.changed_at[1] == "timestamp" else ""
            )
        values[shape.other[0]] = OTHERS[shape.other[1]][0]
        values["mine"] = str(n in shape.chosen).lower()
        values["n"] = str(n)
        listed = ", ".join(map(name, values))
        made.append(f'insert into fuzz."Any %s table" ({listed}) values ({", ".join(values.values())})')
    bad = ", ".join(map(str, shape.poison)) or "0"
    if shape.trigger is not None:
        body = TRIGGERS[shape.trigger].format(code=shape.code, other=name(shape.other[0]))
        event = "delete or update"
        made += [
            "create function fuzz.poison() returns trigger language plpgsql as $f$ begin"
            f" if tg_op = 'DELETE' or old.n not in ({bad}) then return coalesce(new, old); end if; {body} end $f$",
            f'create trigger poison {shape.timing} {event} on fuzz."Any %s table" for each row execute function fuzz.poison()',
        ]
    return [*made, *constraint(shape, key, bad)]


def constraint(shape: Shape, key: str, bad: str) -> list[str]:
    """Statements that make the database refuse outcomes of poisoned rows, or of all."""
    table = 'fuzz."Any %s table"'
    if shape.state is None:
        done = "not mine"
    else:
        kind = shape.state[1].replace("mood", "fuzz.mood")
        done = f"{name(shape.state[0])} = '{state_of(shape, 'done')}'::{kind}"
    match shape.constraint:
        case "check":
            return [f"alter table {table} add check (n not in ({bad}) or not ({done})) not valid"]
        case "deferred":
            return [
                "create function fuzz.late() returns trigger language plpgsql as $f$ begin raise 'too late'; end $f$",
                f"create constraint trigger late after update on {table} deferrable initially deferred for each row"
                f" when (old.n in ({bad})) execute function fuzz.late()",
            ]
        case "unique":  # one of the poisoned rows may be done
            leaves = ["fuzz.p0", "fuzz.p1"] if shape.partitioned else [table]
            those = ", ".join(map(str, shape.poison & shape.chosen)) or "0"
            return [f"create unique index on {leaf} ((n > 0)) where n in ({those}) and {done}" for leaf in leaves]
        case "referred to" | "referred to, deferred":
            when = " deferrable initially deferred" if shape.constraint.endswith("deferred") else ""
            columns = ", ".join(f"{name(column)} {kind}" for column, kind in shape.key)
            return [
                f"create table fuzz.children ({columns}, foreign key ({key}) references {table} ({key}){when})",
                f"insert into fuzz.children select {key} from {table} where n in ({bad})",
            ]
        case "refers" if shape.state is not None:  # to a table in which the state that rows are to go to is missing
            states = ", ".join(f"('{state_of(shape, each)}')" for each in ("new", "busy", "other"))
            column = name(shape.state[0])
            return [
                f"create table fuzz.parents (state {kind} primary key)",
                f"insert into fuzz.parents values {states}",
                f"alter table {table} add foreign key ({column}) references fuzz.parents",
            ]
        case _:
            return []


def rows_of(connection: psycopg.Connection[Any]) -> dict[int, dict[str, str | None]]:
    query = 'select n, (select jsonb_object_agg(key, value) from jsonb_each_text(to_jsonb("whole row"))) from fuzz."Any %s table" as "whole row"'
    return dict(connection.execute(query).fetchall())


async def look_after(app: App, shape: Shape, clock: ManualClock) -> int:
    """Declare it, and sweep until nothing is left to be tried. Returns how many rows a sweep found kept as they were."""
    spec: dict[str, Any] = {"key": [column for column, _ in shape.key]}
    if shape.state is not None:
        spec["state"] = shape.state[0]
    if shape.changed_at is not None:
        spec["changed_at"] = shape.changed_at[0]
    if shape.version is not None:
        spec["version"] = shape.version
    if shape.mode == "lease_columns":
        spec["lease_columns"] = ("owner!", "until!")
    conditions = ["mine"] if shape.state is None else []
    if shape.raises:
        bad = ", ".join(map(str, shape.poison)) or "0"
        conditions.append(f"1 / (n not in ({bad}))::int = 1")
    if conditions:
        spec["where"] = " and ".join(conditions)
    table = app.table(("fuzz", "Any %s table"), **spec)
    states = () if shape.state is None else (state_of(shape, "new"),)
    options: dict[str, Any] = {"name": "fuzz", "every": "1h", "retry": Retry(max_attempts=ATTEMPTS, first="1s")}
    if shape.changed_at is not None:
        options["stale_for"] = "10m"
    written = {shape.other[0]: OTHERS[shape.other[1]][1]}

    def fix(row: Any) -> Any:
        if shape.does == "raise":
            raise ValueError("never")
        if shape.does == "nothing":
            return None
        if shape.does == "delete":
            return Delete()
        if shape.does == "to" and shape.state is not None:
            return To(state_of(shape, "done"), written)
        return Stay({"mine": False, **written}) if shape.state is None else To(state_of(shape, "done"))

    if shape.mode == "delete":
        table.delete(*states, **options)
    elif shape.mode == "move":
        table.move(*states, to=state_of(shape, "done"), set=written, **options)
    else:
        more = {
            "claimed_as": {"claimed_as": state_of(shape, "busy")} if shape.state else {},
            "row_lock": {"claim": "row_lock"},
        }
        table.reconcile(*states, **options, revisit="10h", **more.get(shape.mode, {}))(fix)
    worker, undone = ManualWorker(app), 0
    await worker.begin()
    try:
        for _ in range(8):
            async with asyncio.timeout(60):
                try:
                    counts = await worker.sweep("fuzz")
                    undone = max(undone, counts.undone)
                    if not counts.claimed:
                        break
                except psycopg.Error as error:  # a statement that the server asks to repeat ends a sweep
                    broken = error.sqlstate == "22012" and not evaluable(
                        shape
                    )  # so does `where=` that raises for all rows
                    if error.sqlstate not in ("40001", "57P01") and not broken:
                        raise
            clock.advance(minutes=1)
    finally:
        await worker.end()
    return undone


def evaluable(shape: Shape) -> set[int]:
    """Rows that show that `where=` can be evaluated: those of the states asked for, of which none is poisoned."""
    looked_at = set(range(1, ROWS + 1)) if shape.state is None else shape.chosen
    return looked_at - shape.poison


def ours(shape: Shape) -> set[str]:
    """Columns that trueup or the outcome may write to."""
    named = {pair[0] for pair in (shape.state, shape.changed_at) if pair is not None}
    named |= {shape.version} if shape.version is not None else set()
    return {*named, shape.other[0], "mine", "owner!", "until!"}


def check(shape: Shape, url: str) -> None:
    clock = ManualClock()
    app = App(url, clock=clock)
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ddl(shape, str(clock.now())):
            connection.execute(statement.encode())
        for table in ("rows", "reconcilers", "sweeps"):
            connection.execute(f"delete from trueup.{table}".encode())
        before = rows_of(connection)
        try:
            undone = asyncio.run(swept(app, shape, clock))
        except ConfigError as refused:
            note(f"refused: {refused}")
            assert "PostgreSQL refuses" not in str(refused)  # noqa: PT017 - a statement of ours is wrong for this table
            untouched = rows_of(connection) == before
            assert untouched, f"refused, and yet written to: {refused}"  # noqa: PT017
            return
        after = rows_of(connection)
        known = {
            row[0]: row[1:]
            for row in connection.execute("select key, state, reason, attempt from trueup.rows").fetchall()
        }
        keys = dict(connection.execute(keys_query(shape)).fetchall())
        kept = 0
        for n, row in before.items():
            if n not in shape.chosen:
                assert after.get(n) == row, f"row {n} was not chosen"
                continue
            if n in after:
                assert {c: v for c, v in after[n].items() if c not in ours(shape)} == {
                    c: v for c, v in row.items() if c not in ours(shape)
                }, f"row {n}: a column that nothing names was written to"
            changed = n not in after or after[n] != row
            state, reason, attempt = known.get(keys.get(n, ""), (None, None, 0))
            if shape.raises and n in shape.poison:
                assert not changed, f"row {n} raises, and yet was written to"
                assert state == "quarantined" or not evaluable(shape), f"row {n} raises, and is {state}"
                if state is None:
                    continue
            if state == "quarantined":
                assert reason
                assert attempt == ATTEMPTS
            elif state is not None:
                assert state == "resting", f"row {n} is {state}"
                # After an outcome that may leave it chosen (Stay), it rests until it is to be visited again.
                assert reason or changed or shape.does == "nothing", f"row {n} rests without a reason"
            elif not changed:
                kept += 1
                assert shape.mode in ("delete", "move"), f"row {n} is neither done nor known"
        assert kept <= undone, f"{kept} rows are neither done nor known, and {undone} are counted"


def keys_query(shape: Shape) -> bytes:
    """Keys as they are known: the same in every session."""
    lasting = {"bytea": "encode({}, 'hex')", "timestamptz": "to_jsonb({} at time zone 'utc') #>> '{{}}'"}
    texts = [lasting.get(kind, "{}::text").format(name(column)) for column, kind in shape.key]
    key = texts[0] if len(texts) == 1 else f"jsonb_build_array({', '.join(texts)})::text"
    return f'select n, {key} from fuzz."Any %s table"'.encode()


async def swept(app: App, shape: Shape, clock: ManualClock) -> int:
    async with app:
        return await look_after(app, shape, clock)


def looked_at(url: str, examples: int, *, derandomize: bool) -> None:
    @settings(
        max_examples=examples,
        derandomize=derandomize,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(shapes())
    def one(shape: Shape) -> None:
        check(shape, url)

    one()


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * LONG)
def test_any_table(database_url: str) -> None:
    if not LONG:
        looked_at(database_url, 8, derandomize=True)
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        looked_at(database_url, 50, derandomize=False)
