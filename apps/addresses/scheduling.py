"""One partial job for every monitored address, in one transaction, under one lock.

The lock is the transaction's: it goes when the transaction ends, however it ends, and no statement has to release it. It only
saves work. That a tick has one set of jobs is decided by trueup's ledger, which fires a tick once, by the run's "done", which
commits together with the jobs, and by the unique index over (tick, address, chain).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import errors

from .books import Tx
from .chains import CHAINS, UNKNOWN

LOCK = 738523901
ASK_AGAIN = 0.05  # seconds
MAX_REFUSED = 100  # addresses that the database refuses: more of them are not the addresses' fault
MAX_TOLD = 1000  # malformed addresses that are named; all are counted

# What may be wrong with one row. Anything else (no connection, no table, no privilege) is wrong with all of them.
ONE_ROW = (psycopg.DataError, psycopg.IntegrityError, errors.RaiseException)

_KNOWN = {
    "chains": list(CHAINS),
    "patterns": [chain.addresses for chain in CHAINS.values()],
    "any": UNKNOWN.addresses,
}

_MALFORMED = """
select address, chain, count(*) over ()
  from addresses left join unnest(%(chains)s::text[], %(patterns)s::text[]) as known (name, pattern) on known.name = chain
 where is_monitored and address !~ coalesce(pattern, %(any)s)
 order by id limit %(most)s
"""

_CREATE = """
with found as materialized (
  select id, canonical, chain
    from addresses left join unnest(%(chains)s::text[], %(patterns)s::text[]) as known (name, pattern) on known.name = chain
   where is_monitored and address ~ coalesce(pattern, %(any)s) and id between %(first)s and %(last)s
), made as (
  insert into reconciliation_jobs (address, chain, mode, tick)
  select canonical, chain, 'partial', %(tick)s from found order by id
      on conflict do nothing
  returning 1
)
select (select count(*) from found), (select count(*) from made)
"""


@dataclass(frozen=True)
class Bad:
    address: str
    chain: str
    why: str


@dataclass
class Created:
    scheduled: int = 0
    already_active: int = 0
    errors: int = 0
    bad: list[Bad] = field(default_factory=list)


async def try_lock(tx: Tx, *, wait: timedelta = timedelta()) -> bool:
    """Whether we have it, until the end of the transaction. Retried for up to `wait`."""
    until = time.monotonic() + wait.total_seconds()
    while True:
        row = await (await tx.execute("select pg_try_advisory_xact_lock(%s)", [LOCK])).fetchone()
        assert row is not None
        if row[0] or time.monotonic() >= until:
            return bool(row[0])
        await asyncio.sleep(ASK_AGAIN)


async def create_jobs(tx: Tx, tick: datetime) -> Created:
    """A job for each monitored address that has none active. Addresses for which there can be none are logged, and do not
    keep the others from theirs. Raises what the database says when it is not about single addresses."""
    created = Created()
    await _find_malformed(tx, created)
    row = await (await tx.execute("select min(id), max(id) from addresses where is_monitored")).fetchone()
    assert row is not None
    if row[0] is not None:
        await _create(tx, tick, row[0], row[1], created)
    return created


async def _find_malformed(tx: Tx, created: Created) -> None:
    cursor = await tx.execute(_MALFORMED, {**_KNOWN, "most": MAX_TOLD})
    for address, chain, count in await cursor.fetchall():
        created.errors = count
        created.bad.append(Bad(address, chain, f"not an address of {chain}"))


async def _create(tx: Tx, tick: datetime, first: int, last: int, created: Created) -> None:
    """For the addresses with these ids: all at once; when the database refuses one of them, in halves, until it is alone."""
    try:
        async with tx.transaction():  # a savepoint: what is refused leaves no trace
            cursor = await tx.execute(_CREATE, {**_KNOWN, "first": first, "last": last, "tick": tick})
            row: Any = await cursor.fetchone()
    except ONE_ROW as error:
        if first == last:
            await _refused(tx, first, error, created)
            return
        middle = (first + last) // 2
        await _create(tx, tick, first, middle, created)
        await _create(tx, tick, middle + 1, last, created)
        return
    found, made = row
    created.scheduled += made
    created.already_active += found - made


async def _refused(tx: Tx, address_id: int, error: psycopg.Error, created: Created) -> None:
    row: Any = await (await tx.execute("select address, chain from addresses where id = %s", [address_id])).fetchone()
    created.errors += 1
    created.bad.append(Bad(row[0], row[1], error.diag.message_primary or type(error).__name__))
    if sum(1 for bad in created.bad if not bad.why.startswith("not an address")) > MAX_REFUSED:
        raise error
