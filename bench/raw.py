"""The limit: what hand-written SQL on one psycopg connection reaches with no guarantees beyond "claimed once".

No fence, no lease, no typed arguments, no handler, no retries, no limits: a batch is claimed, and moved to a history table.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg

SCHEMA = """
drop schema if exists raw cascade;
create schema raw;
create table raw.jobs (id bigint generated always as identity primary key, kind text not null, state text not null default 'queued',
                       run_at timestamptz not null default now(), args jsonb not null);
create index raw_ready on raw.jobs (run_at, id) where state = 'queued';
create table raw.history (id bigint not null, kind text not null, args jsonb not null, finished_at timestamptz not null);
create index raw_history_id on raw.history (id);
"""
CLAIM = """
update raw.jobs set state = 'running'
 where ctid = any(array(select ctid from raw.jobs where state = 'queued' and run_at <= now() order by run_at, id limit %s for update skip locked))
returning id, kind, args
"""
FINISH = """
with gone as (delete from raw.jobs where id = any(%s) returning id, kind, args)
insert into raw.history select id, kind, args, now() from gone
"""
ENQUEUE_AND_NOTIFY = """
with fresh as (insert into raw.jobs (kind, args) values ('noop', '{}') returning 1) select pg_notify('raw', '') from fresh
"""

ITEMS = """
drop table if exists items;
create table items (id bigint primary key, state text not null default 'stale', changed_at timestamptz not null, payload text not null);
create index items_stale on items (state, changed_at, id);
insert into items (id, changed_at, payload)
select n, now() - interval '1 day' + n * interval '1 ms', repeat('x', 60) from generate_series(1, %s) as n;
vacuum analyze items;
"""
OLDEST = "state = 'stale' and changed_at < now() - interval '10 min' order by changed_at, id"
MOVE = f"""
update items set state = 'done', changed_at = now()
 where ctid = any(array(select ctid from items where {OLDEST} limit %s for update skip locked))
"""
DELETE = (
    f"delete from items where ctid = any(array(select ctid from items where {OLDEST} limit %s for update skip locked))"
)
TAKE_ONE = f"select * from items where {OLDEST} limit 1 for update skip locked"
MOVE_ONE = "update items set state = 'done', changed_at = now() where id = %s"


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


def prepare(url: str) -> None:
    with connect(url) as connection:
        connection.execute(SCHEMA)


def bulk_enqueue(url: str, count: int) -> float:
    """Rows per second with COPY."""
    with connect(url) as connection:
        started = time.perf_counter()
        with connection.transaction(), connection.cursor().copy("copy raw.jobs (kind, args) from stdin") as copy:
            for number in range(count):
                copy.write(f'noop\t{{"n": {number}}}\n')
        return count / (time.perf_counter() - started)


def enqueue_one_by_one(url: str, count: int) -> float:
    with connect(url) as connection:
        started = time.perf_counter()
        for number in range(count):
            connection.execute(
                "insert into raw.jobs (kind, args) values ('noop', %s::jsonb) returning id", (f'{{"n": {number}}}',)
            )
        return count / (time.perf_counter() - started)


def drain(url: str, batch: int = 500) -> float:
    """Claim and move to the history until nothing is left; jobs per second."""
    with connect(url) as connection:
        connection.execute("analyze raw.jobs")
        started, done = time.perf_counter(), 0
        while rows := connection.execute(CLAIM, (batch,)).fetchall():
            connection.execute(FINISH, ([row[0] for row in rows],))
            done += len(rows)
        return done / (time.perf_counter() - started)


def notify_round_trip(url: str, count: int) -> list[float]:
    """Milliseconds from sending a committed insert + NOTIFY on one connection to having claimed the row on another."""
    taken = []
    with connect(url) as listening, connect(url) as sending:
        listening.execute("listen raw")
        for _ in range(count):
            started = time.perf_counter()
            sending.execute(ENQUEUE_AND_NOTIFY)
            list(listening.notifies(stop_after=1, timeout=5))
            rows = listening.execute(CLAIM, (1,)).fetchall()
            taken.append((time.perf_counter() - started) * 1000)
            listening.execute(FINISH, ([row[0] for row in rows],))
    return taken


def fill_items(url: str, count: int) -> None:
    """So many stale rows of a user's table, with the index that serves looking for them."""
    with connect(url) as connection:
        for statement in filter(str.strip, ITEMS.split(";")):
            connection.execute(statement.replace("%s", str(count)).encode())


def in_batches(url: str, statement: str, batch: int) -> float:
    """Rows per second that a statement over a batch, sent until it finds nothing, gets through."""
    with connect(url) as connection:
        started, done = time.perf_counter(), 0
        while count := connection.execute(statement.encode(), (batch,)).rowcount:
            done += count
        return done / (time.perf_counter() - started)


async def one_by_one(url: str, concurrency: int, *, prepare: bool = True) -> float:
    """Rows per second of what people write by hand: lock the oldest row, handle it, write its state, commit; so many at once.

    psycopg prepares statements by itself; without `prepare` it does not, as behind a pooler.
    """
    done = 0
    options: dict[str, Any] = {} if prepare else {"prepare_threshold": None}

    async def loop() -> None:
        nonlocal done
        async with await psycopg.AsyncConnection.connect(url, **options) as connection:
            while True:
                async with connection.transaction():
                    row = await (await connection.execute(TAKE_ONE.encode())).fetchone()
                    if row is None:
                        return
                    await connection.execute(MOVE_ONE, (row[0],))
                done += 1

    started = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(concurrency)))
    return done / (time.perf_counter() - started)
