"""A reconciler as a role that does not own the table it looks after. What is refused in which words is in test_tables.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from trueup import App, To
from trueup.errors import ConfigError

pytestmark = pytest.mark.asyncio

SHOP = """
create role clerk;
grant usage, create on schema trueup to clerk;
grant all on all tables in schema trueup to clerk;
grant all on all sequences in schema trueup to clerk;
create table orders (id int primary key, state text not null, tenant text);
insert into orders values (1, 'open', 'a'), (2, 'open', 'b');
grant select, update on orders to clerk;
alter table orders enable row level security;
create policy tenants on orders using (tenant = current_setting('app.tenant', true));
"""


@pytest.fixture
def owner(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(SHOP.encode())
        yield connection
        connection.execute("drop owned by clerk; drop role clerk")


@pytest.mark.parametrize("way_out", [0, 1])
async def test_a_reconciler_that_sees_no_row_is_refused_with_a_statement_that_helps(
    database_url: str, owner: psycopg.Connection[Any], way_out: int
) -> None:
    app = App(make_conninfo(database_url, options="-c role=clerk"))

    @app.table("orders", key="id", state="state").reconcile("open", every=None)
    async def ship(order: Any) -> To:
        return To("shipped")

    try:
        with pytest.raises(ConfigError, match="row-level security applies to the role clerk") as refused:
            await app.reconcilers.run("ship")
        ways = re.findall(r"run: (.*), or: (.*)$", str(refused.value))[0]
        owner.execute(ways[way_out])
        await app.reconcilers.run("ship")
    finally:
        await app.close()
    assert owner.execute("select array_agg(state order by id) from orders").fetchone() == (["shipped", "shipped"],)
