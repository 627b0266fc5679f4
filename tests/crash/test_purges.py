"""Two workers purge a table whose trigger sets their batches against one another."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.watching import until
from trueup import App

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

ROWS, BATCH = 600, 100

# Each row that goes is subtracted from two totals, those of one batch in another order than those of the next: so two batches come
# to want what the other has. The first row of each takes a while in between, for the other to get there.
TABLES = """
create table totals (name int primary key, rows int not null);
insert into totals values (0, 0), (1, 0);
create table uploads (id int primary key, state text not null, changed_at timestamptz not null);
create index on uploads (state, changed_at, id);
create function subtract() returns trigger language plpgsql as $$
begin
  update totals set rows = rows - 1 where name = old.id / 100 % 2;
  if old.id % 100 = 0 then perform pg_sleep(0.5); end if;
  update totals set rows = rows - 1 where name = 1 - old.id / 100 % 2;
  return null;
end $$;
create trigger subtract after delete on uploads for each row execute function subtract();
"""
FILL = """
insert into uploads select n, 'initiated', now() - interval '1 d' + n * interval '1 ms' from generate_series(0, %s - 1) as n
"""
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


def app_of(url: str) -> App:
    app = App(url)
    uploads = app.table("uploads", key="id", state="state", changed_at="changed_at")
    uploads.delete("initiated", stale_for="1h", every="1s", batch=BATCH, name="intents", run_at_start=True)
    return app


async def test_batches_that_deadlock_in_a_trigger_are_retried_until_all_rows_are_gone(
    database_url: str,
) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute(FILL, [ROWS])

        def scalar(query: str) -> Any:
            row = connection.execute(query.encode()).fetchone()
            return row and row[0]

        one, other = app_of(database_url), app_of(database_url)
        async with one, other, one.worker(), other.worker():
            await until(lambda: scalar("select count(*) from uploads") == 0, timeout=60)
        await until(lambda: scalar(DEADLOCKS))
        assert connection.execute("select rows from totals").fetchall() == [(-ROWS,), (-ROWS,)], "each went once"
