"""Every statement that a reconciler may ever send is planned by PostgreSQL when its worker starts; what is refused is refused then."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.work.rows.field import NAME, Field
from trueup import Row, To
from trueup.errors import ConfigError
from trueup.store import fitted
from trueup.store.db.load import Statements, names, source

pytestmark = pytest.mark.asyncio

# Sent by people only, who see the error at once; or where a handler has no transaction of its own, otherwise the same.
LEFT_OUT = {
    "rows/waiting",
    "rows/listed",
    "rows/purgeable",
    "rows/purge_list",
    "rows/change_alone",
    "rows/remove_alone",
}
MORE = "alter table things add column owner text, add column until timestamptz"
PARTITIONED = "create table parts (id int primary key, state text, changed_at timestamptz) partition by range (id)"


async def declare_all(field: Field) -> None:
    await field.do(MORE)
    await field.do(PARTITIONED)
    app = field.app
    leased = app.table("things", key="id", state="state", changed_at="changed_at", lease_columns=("owner", "until"))
    parts = app.table("parts", key="id", state="state", changed_at="changed_at")

    async def fix(row: Row) -> To:
        return To("done")

    field.fix(fix)
    field.fix(fix, table=leased, working_state="busy", name="marked")
    field.fix(fix, claim="row_lock", name="locked")
    for name, table in (("things", field.table), ("parts", parts)):
        table.delete("new", stale_for="1h", name=f"delete {name}".replace(" ", "-"), max_fraction=0.5)
        table.move("new", to="old", stale_for="1h", name=f"move-{name}", set={} if name == "parts" else {"n": 3})


OURS = re.findall(
    r"\w+",
    """
key term holder due_at attempt reconciler verdict seen as_left chosen there k1 c1 t m h r c k v p trueup_n trueup_key trueup_term
trueup_state trueup_seen trueup_due trueup_t1 trueup_k1 trueup_c1 trueup_free trueup_order trueup_null trueup_attempt
    """,
)


async def test_columns_may_have_the_names_that_our_statements_use(field: Field) -> None:
    columns = ", ".join(f'"{name}" text' for name in OURS if name not in ("key", "due_at"))
    await field.do("drop table things")
    await field.do(
        f"create table things (key int primary key, state text, due_at timestamptz, {columns}, until timestamptz)"
    )
    await field.do("insert into things (key, state) values (1, 'new')")
    modes: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        NAME: ({}, {}),
        "marked": ({"lease_columns": ("holder", "until")}, {"working_state": "busy"}),
        "locked": ({"changed_at": "due_at"}, {"claim": "row_lock"}),
    }

    async def fix(row: Row) -> To:
        return To("done", term="x", trueup_seen="y")

    for name, (spec, options) in modes.items():
        table = field.app.table("things", key="key", state="state", **spec)
        field.fix(fix, table=table, name=name, stale_for=None, **options)
    await field.gather()
    for name in modes:
        await field.do("update things set state = 'new', term = null, trueup_seen = null")
        await field.sweep(name)
        assert await field.ask("select state, term, trueup_seen from things") == [
            {"state": "done", "term": "x", "trueup_seen": "y"}
        ]


async def test_no_statement_is_left_out(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    await declare_all(field)
    composed: dict[bytes, str] = {}
    compose = Statements.compose

    def noted(self: Statements, name: str, **more: Any) -> bytes:
        made = compose(self, name, **more)
        composed[made] = name
        return made

    monkeypatch.setattr(Statements, "compose", noted)
    await field.gather()
    tried = {
        composed[query]
        for member in field.manual.worker.row_services.members.values()
        for query in (member.rows if hasattr(member, "rows") else member.purges).made.every().values()
    }
    over_users_tables = {name for name in names() if name.startswith("rows/") and "{table}" in source(name)}
    assert tried - {"rows/probe", "rows/readable"} == over_users_tables - LEFT_OUT


@pytest.mark.parametrize("what", ["claim rows", "forget rows", "mark rows", "renew leases", "write an outcome"])
async def test_a_statement_that_postgresql_refuses_is_named_at_start(
    field: Field, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await field.do(MORE)
    table = field.app.table("things", key="id", state="state", lease_columns=("owner", "until"))
    field.fix(lambda row: None, table=table, stale_for=None, claimed_as="busy")
    every = fitted.RowStatements.every
    monkeypatch.setattr(
        fitted.RowStatements, "every", lambda self: {**every(self), what: b"update things set twice = %(no)s"}
    )
    with pytest.raises(
        ConfigError, match=f"reconciler '{NAME}': table 'public.things': PostgreSQL refuses to {what}: "
    ):
        await field.gather()
    with pytest.raises(ConfigError, match=f"PostgreSQL refuses to {what}: "):
        await field.app.reconcilers.dry_run(NAME)


async def test_a_table_that_cannot_be_written_is_not_taken_for_a_database_that_is_away(field: Field) -> None:
    """psycopg calls the error operational, as it does those of a server that is away."""
    await field.do("alter table things replica identity nothing")
    await field.do("create publication everything for table things")
    field.fix(lambda row: None)
    with pytest.raises(ConfigError, match="does not have a replica identity and publishes updates"):
        await field.gather()
