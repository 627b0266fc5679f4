"""The independent check: it finds nothing in books that balance, and each thing that can be wrong with others."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from apps.addresses.check import check, examine
from apps.addresses.demo import told
from apps.payments.token import deploy, transfer
from tests.apps.addresses.desk import Desk, Node

pytestmark = pytest.mark.asyncio

FIRST = "(select min(id) from transactions)"

# What is planted, and what must be said of it.
PLANTED = {
    f"delete from transactions where id = {FIRST}": [
        "1 transactions do not add up in the audit log",
        "1 transactions of the chain are not here",
    ],
    f"update transactions set deleted_at = now() where id = {FIRST}": [
        "1 transactions do not add up in the audit log",
        "1 transactions of the chain are not here",
    ],
    f"update transactions set value = value + 1 where id = {FIRST}": [
        "1 transactions of the chain are not here",
        "1 transactions here are not on the chain, or differ",
    ],
    f"update transactions set fee = fee + 1 where id = {FIRST}": [
        "1 transactions of the chain are not here",
        "1 transactions here are not on the chain, or differ",
    ],
    f"update transactions set succeeded = not succeeded where id = {FIRST}": [
        "1 transactions of the chain are not here",
        "1 transactions here are not on the chain, or differ",
    ],
    f"insert into addresses (address, chain) values ('0x{7:040x}', 'ethereum')": [
        "1 monitored addresses were never reconciled"
    ],
    "update transactions set block_number = block_number + 1 where transfer <> ''": [
        "1 transactions of the chain are not here",
        "1 transactions here are not on the chain, or differ",
    ],
    """insert into transactions (chain, hash, block_number, from_address, value, fee, succeeded)
       values ('ethereum', '0x01', 1, '0x02', 0, 0, true)""": [
        "1 transactions do not add up in the audit log",
        "1 transactions here are not on the chain, or differ",
    ],
    "insert into reconciliation_audit_log (job, transaction, action) select job, transaction, action from"
    " reconciliation_audit_log where action = 'added' order by id limit 1": [
        "1 transactions do not add up in the audit log"
    ],
    "update addresses set last_reconciled_block = last_reconciled_block - 1": [
        "1 checkpoints are not those of a completed job",
    ],
    "update reconciliation_jobs set next_block = next_block - 1": [
        "1 completed jobs did not reach the end of their window"
    ],
    "insert into reconciliation_jobs (address, chain, mode, status) values ('a', 'ethereum', 'full', 'running')": [
        "1 jobs were left running"
    ],
    "insert into reconciliation_jobs (address, chain, mode, status) values ('a', 'ethereum', 'full', 'failed')": [
        "1 jobs failed"
    ],
    """drop index reconciliation_jobs_tick; insert into reconciliation_jobs (address, chain, mode, status, tick, to_block, final_block,
       next_block) select 'a', 'ethereum', 'full', 'completed', now(), 1, 1, 2 from generate_series(1, 2)""": [
        "1 addresses have more than one job for a tick"
    ],
}


async def test_the_check_agrees_with_books_that_balance_and_sees_each_thing_that_is_wrong(
    desk: Desk, node: Node, database_url: str
) -> None:
    ada, bob, eve = node.accounts()[:3]
    token = deploy(node, eve, node.mine)
    node.pay(ada, bob, 1)
    node.pay(bob, eve, 2)  # none of ours
    transfer(node, bob, token, ada, 3)
    node.mine(2)
    await desk.monitor(ada)
    job = await desk.reconcile(ada)
    assert (job["status"], job["added"]) == ("completed", 2)
    checked = await asyncio.to_thread(check, database_url, node.url)
    assert (checked.wrong, checked.on_chain, checked.here) == ([], 2, 2)
    assert not told(checked)[0], "nothing was taken back, so the demo has not shown what it is for"
    with psycopg.connect(database_url) as connection:
        for statement, wrong in PLANTED.items():
            connection.execute(statement.encode())
            found = await asyncio.to_thread(examine, connection, node.url)
            connection.rollback()
            assert sorted(found.wrong) == sorted(wrong), statement
            holds, line = told(found)
            assert not holds
            assert line.startswith(f"The books do NOT balance: {found.wrong[0]}")
