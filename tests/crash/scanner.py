"""A worker process with a scan over pages of numbers: `python -m tests.crash.scanner`.

It notes in `TABLES` where its generator was told to go on from, and when each item was begun and ended, by the database's clock.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.journal import VARIABLE, Journal
from trueup import App

TABLES = """
create schema effects;
create table effects.passes (pid int not null, cursor int, at timestamptz not null default clock_timestamp());
create table effects.items (id bigint generated always as identity, item int not null, pid int not null,
                            began timestamptz not null default clock_timestamp(), ended timestamptz);
create table effects.saves (id bigint generated always as identity, started_at timestamptz not null, underway boolean not null, cursor int, items bigint not null);
create function effects.note() returns trigger language plpgsql as $$
begin
  insert into effects.saves (started_at, underway, cursor, items) values (new.started_at, new.underway, new.cursor::int, new.items);
  return null;
end $$;
create trigger noted after update on trueup.scans for each row when (new.started_at is not null) execute function effects.note();
"""
PAGE = 50
CONCURRENCY = 4


def declare(app: App) -> None:
    count = int(os.environ.get("SCAN_ITEMS", "1500"))

    @app.scan("numbers", every=os.environ.get("SCAN_EVERY", "1h"), concurrency=CONCURRENCY)
    async def pages(cursor: int | None) -> AsyncIterator[tuple[int, int | None]]:
        async with app.store.pool.use() as connection:
            note = b"insert into effects.passes (pid, cursor) values (%s, %s)"
            await connection.execute(note, [os.getpid(), cursor])
        for page in range(cursor or 0, count // PAGE):
            following = page + 1 if (page + 1) * PAGE < count else None
            for number in range(page * PAGE, (page + 1) * PAGE):
                yield number, following

    @pages.each
    async def handle(item: int) -> None:
        async with app.store.pool.use() as connection:
            began = b"insert into effects.items (item, pid) values (%s, %s) returning id"
            row = await (await connection.execute(began, [item, os.getpid()])).fetchone()
            await asyncio.sleep(0.005)
            await connection.execute(b"update effects.items set ended = clock_timestamp() where id = %s", row)


async def work() -> None:
    app = App()
    declare(app)
    journal = Journal(Path(os.environ[VARIABLE]))
    app.events.subscribe(journal)
    worker = app.worker()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.request_stop)
    await worker.run()
    await app.close()
    journal.close()


if __name__ == "__main__":
    asyncio.run(work())
