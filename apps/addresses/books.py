"""The local copy of transactions, and the audit log of every change to it. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from trueup.web.database import apply_schema

from .compare import Differences, Key, Local, Transaction

Tx = AsyncConnection[Any]

SCHEMA = (files(__package__) / "schema.sql").read_text("utf-8")
GONE = "not on the chain"

_ADD = """
with given as (
  select t.*, r.row -> 'after' as after
    from jsonb_array_elements(%(rows)s) as r (row), jsonb_populate_record(null::transactions, r.row -> 'after') as t
), added as (
  insert into transactions
         (chain, hash, transfer, token, block_number, from_address, to_address, value, fee, succeeded, seen_by_job)
  select %(chain)s, hash, coalesce(transfer, ''), token, block_number, from_address, to_address, value, fee, succeeded, %(job)s
    from given order by hash, transfer
      on conflict (chain, hash, transfer) do nothing
  returning hash, transfer
)
insert into reconciliation_audit_log (job, transaction, action, after)
select %(job)s, given.hash, 'added', after
  from given join added on added.hash = given.hash and added.transfer = coalesce(given.transfer, '')
 order by block_number, given.hash, added.transfer
"""

_CHANGE = """
with given as (
  select t.*, r.row ->> 'action' as action, r.row -> 'before' as before, r.row -> 'after' as after
    from jsonb_array_elements(%(rows)s) as r (row), jsonb_populate_record(null::transactions, r.row -> 'after') as t
), changed as (
  update transactions as t
     set block_number = g.block_number, from_address = g.from_address, to_address = g.to_address, value = g.value, fee = g.fee,
         succeeded = g.succeeded, deleted_at = null, deletion_reason = null
    from given as g
   where t.chain = %(chain)s and t.hash = g.hash and t.transfer = coalesce(g.transfer, '')
  returning t.hash, t.transfer
)
insert into reconciliation_audit_log (job, transaction, action, before, after)
select %(job)s, given.hash, action, before, after
  from given join changed on changed.hash = given.hash and changed.transfer = coalesce(given.transfer, '')
 order by block_number, given.hash, changed.transfer
"""

_SEEN = """
update transactions as t set seen_by_job = %(job)s
  from unnest(%(hashes)s::text[], %(transfers)s::text[]) as found (hash, transfer)
 where t.chain = %(chain)s and t.hash = found.hash and t.transfer = found.transfer and coalesce(t.seen_by_job, 0) < %(job)s
"""

_UNSEEN = """
select id, hash, transfer from transactions
 where chain = %(chain)s and (from_address = %(address)s or to_address = %(address)s)
   and block_number between %(first)s and %(last)s and deleted_at is null and coalesce(seen_by_job, 0) < %(job)s
   and id > %(after)s
 order by id limit %(most)s
"""

_DELETE = """
with unseen as (
  select id from transactions
   where id = any(%(ids)s) and deleted_at is null and coalesce(seen_by_job, 0) < %(job)s
   order by id for update
), gone as (
  update transactions as t set deleted_at = now(), deletion_reason = %(reason)s
    from unseen
   where t.id = unseen.id
  returning t.*
)
insert into reconciliation_audit_log (job, transaction, action, before, after)
select %(job)s, hash, 'soft_deleted',
       jsonb_build_object('hash', hash, 'block_number', block_number, 'from_address', from_address, 'to_address', to_address,
                          'value', value::text, 'fee', fee::text, 'succeeded', succeeded)
         || case when transfer = '' then '{}' else jsonb_build_object('token', token, 'transfer', transfer) end,
       jsonb_build_object('deletion_reason', deletion_reason)
  from gone order by block_number, hash
"""


@dataclass(frozen=True)
class Counts:
    checked: int = 0
    added: int = 0
    soft_deleted: int = 0
    discrepancies: int = 0


async def make_tables(tx: Tx) -> None:
    await apply_schema(tx, SCHEMA, marked="reconciliation_jobs")


async def addresses(tx: Tx, chain: str) -> frozenset[str]:
    """All that there are of this chain."""
    cursor = await tx.execute("select canonical from addresses where chain = %s", [chain])
    return frozenset(row[0] for row in await cursor.fetchall())


async def local(tx: Tx, chain: str, keys: Sequence[Key]) -> dict[Key, Local]:
    """What we have of these, locked, because other jobs may be at the same transactions; in one order, so that none waits in a ring."""
    if not keys:
        return {}
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select t.* from transactions as t join unnest(%s::text[], %s::text[]) as found (hash, transfer)"
            " on t.hash = found.hash and t.transfer = found.transfer where t.chain = %s order by t.id for update of t",
            [*_columns(keys), chain],
        )
        rows = await cursor.fetchall()
    return {(row["hash"], row["transfer"]): Local(_transaction(row), row["deleted_at"] is not None) for row in rows}


def _columns(keys: Sequence[Key]) -> list[list[str]]:
    return [[tx_hash for tx_hash, _ in keys], [transfer for _, transfer in keys]]


def _transaction(row: dict[str, Any]) -> Transaction:
    values = {field.name: row[field.name] for field in fields(Transaction)}
    return Transaction(**{**values, "value": int(row["value"]), "fee": int(row["fee"])})


async def write(tx: Tx, job: int, chain: str, found: Sequence[Transaction], differences: Differences) -> Counts:
    """Make the local copy what the chain is, for the transactions that were found there.

    One that another job has added in this moment is that job's, and in its audit.
    """
    missing = [{"after": transaction.facts()} for transaction in differences.missing]
    back = [_changed("added", before, after) for before, after in differences.gone_before]
    corrected = [_changed("discrepancy", before, after) for before, after in differences.differing]
    facts = {"job": job, "chain": chain}
    added = len(back)
    if missing:
        added += (await tx.execute(_ADD, {**facts, "rows": Jsonb(missing)})).rowcount
    if back or corrected:
        await tx.execute(_CHANGE, {**facts, "rows": Jsonb(back + corrected)})
    if found:
        hashes, transfers = _columns([transaction.key for transaction in found])
        await tx.execute(_SEEN, {**facts, "hashes": hashes, "transfers": transfers})
    return Counts(checked=len(found), added=added, discrepancies=len(corrected))


def _changed(action: str, before: Transaction, after: Transaction) -> dict[str, Any]:
    gone = {"deleted": True} if action == "added" else {}
    return {"action": action, "before": {**before.facts(), **gone}, "after": after.facts()}


@dataclass(frozen=True)
class Unseen:
    """A local row that no job as new as this one has found on the chain."""

    id: int
    hash: str
    transfer: str


async def unseen(
    tx: Tx, job: int, chain: str, address: str, first: int, last: int, *, after: int, most: int
) -> list[Unseen]:
    """What is only here, in these blocks, with higher ids than `after`, up to a limit.

    Only when all of these blocks have been read: whatever is on the chain has then been marked as seen, by this job or a newer one.
    """
    block = {"first": first, "last": last, "after": after, "most": most}
    cursor = await tx.execute(_UNSEEN, {"job": job, "chain": chain, "address": address, **block})
    return [Unseen(*row) for row in await cursor.fetchall()]


async def delete(tx: Tx, job: int, ids: Sequence[int]) -> int:
    """Soft-delete these, unless another run has seen them meanwhile. Returns how many."""
    return (await tx.execute(_DELETE, {"job": job, "ids": list(ids), "reason": GONE})).rowcount


async def note_error(tx: Tx, job: int, error: str) -> None:
    await tx.execute(
        "insert into reconciliation_audit_log (job, action, after) values (%s, 'error', %s)",
        [job, Jsonb({"error": error})],
    )


async def audit(tx: Tx, job: int, *, after: int, most: int) -> list[dict[str, Any]]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            "select id, job, transaction, action, before, after, created_at from reconciliation_audit_log"
            " where job = %s and id > %s order by id limit %s",
            [job, after, most],
        )
        return await cursor.fetchall()
