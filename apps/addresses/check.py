"""An independent check of the local copy: plain SQL over the tables, and the node as any client sees it. No code of the application's.

What must be is said a second time here, and asked for in another way: fees from single receipts, tokens from eth_getLogs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from apps.checking import Chain, counted, party, told

# Each counts what is wrong.
WRONG = {
    "transactions do not add up in the audit log": """
select count(*) from (
  select hash, count(*) filter (where deleted_at is null) as here from transactions group by hash
) as t full join (
  select transaction as hash, count(*) filter (where action = 'added') - count(*) filter (where action = 'soft_deleted') as here
    from reconciliation_audit_log where action in ('added', 'soft_deleted') group by 1
) as a using (hash) where t.here is distinct from a.here""",
    "addresses have more than one job for a tick": """
select count(*) from (select from reconciliation_jobs where tick is not null group by tick, address, chain having count(*) > 1) as d""",
    "jobs were left running": "select count(*) from reconciliation_jobs where status = 'running'",
    "jobs failed": "select count(*) from reconciliation_jobs where status = 'failed' and replaced_by is null",
    "completed jobs did not reach the end of their window": """
select count(*) from reconciliation_jobs
 where status = 'completed' and (final_block is distinct from to_block or next_block is distinct from to_block + 1)""",
    "checkpoints are not those of a completed job": """
select count(*) from addresses as a
 where last_reconciled_block is distinct from (
   select max(final_block) from reconciliation_jobs as j
    where j.address = a.canonical and j.chain = a.chain and status = 'completed')""",
    "monitored addresses were never reconciled": "select count(*) from addresses where is_monitored and last_reconciled_block is null",
    "claims are left": "select count(*) from {trueup}.rows where state = 'held'",
}

COMPARED = """
select a.canonical, min(j.from_block), a.last_reconciled_block from addresses as a
  join reconciliation_jobs as j on j.address = a.canonical and j.chain = a.chain and j.status = 'completed'
 where a.chain = %s group by a.id
"""
HERE = """
select hash, token, block_number, from_address, to_address, succeeded, value, fee from transactions where chain = %s and deleted_at is null
"""
COUNTS = """
select (select count(*) from addresses), (select count(*) from reconciliation_audit_log where action = 'added'),
       (select count(*) from reconciliation_audit_log where action = 'soft_deleted'),
       (select count(*) from reconciliation_jobs where status = 'completed'), (select count(distinct tick) from reconciliation_jobs)
"""

Facts = tuple[
    str, str | None, int, str, str | None, bool, int, int
]  # hash, token, block, from, to, succeeded, value, fee
Windows = dict[str, tuple[int, int]]  # by address: the blocks that were compared, both included


@dataclass(frozen=True)
class Checked:
    """`wrong` is empty when nothing is lost, doubled or stuck."""

    addresses: int
    on_chain: int
    here: int
    added: int
    soft_deleted: int
    jobs: int
    ticks: int
    wrong: list[str]


def check(database: str, node: str, chain: str = "ethereum", *, schema: str = "trueup") -> Checked:
    """`schema` has trueup's tables."""
    with psycopg.connect(database) as connection:
        return examine(connection, node, chain, schema=schema)


def examine(connection: Connection[Any], node: str, chain: str = "ethereum", *, schema: str = "trueup") -> Checked:
    found = counted(connection, WRONG, schema=schema)
    windows = {address: (first, last) for address, first, last in connection.execute(COMPARED, [chain])}
    rows = connection.execute(HERE, [chain]).fetchall()
    (counts,) = connection.execute(COUNTS).fetchall()
    here = Counter[Facts]((*row[:6], int(row[6]), int(row[7])) for row in rows)
    there = Counter(_on_chain(Chain(node), windows))
    found["transactions of the chain are not here"] = (there - here).total()
    found["transactions here are not on the chain, or differ"] = (here - there).total()
    addresses, added, soft_deleted, jobs, ticks = counts
    return Checked(addresses, there.total(), here.total(), added, soft_deleted, jobs, ticks, told(found))


def _on_chain(chain: Chain, windows: Windows) -> list[Facts]:
    """What there is of these addresses, in the blocks that were compared for them."""
    ours: list[Any] = [each for block in chain.blocks() for each in block["transactions"] if _concerns(each, windows)]
    receipts = chain.receipts([each["hash"] for each in ours])
    found: list[Facts] = []
    for each, receipt in zip(ours, receipts, strict=True):
        fee = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        block, value = int(each["blockNumber"], 16), int(each["value"], 16)
        found.append((each["hash"], None, block, each["from"], each["to"], receipt["status"] == "0x1", value, fee))
    for log in chain.transfers():
        sender, receiver, block = party(log["topics"][1]), party(log["topics"][2]), int(log["blockNumber"], 16)
        if _within(windows, block, sender, receiver):
            facts = (log["transactionHash"], log["address"], block, sender, receiver, True, int(log["data"], 16), 0)
            found.append(facts)
    return found


def _concerns(transaction: Any, windows: Windows) -> bool:
    return _within(windows, int(transaction["blockNumber"], 16), transaction["from"], transaction["to"])


def _within(windows: Windows, block: int, *parties: str | None) -> bool:
    return any(first <= block <= last for each in parties if each for first, last in [windows.get(each, (0, -1))])
