"""A node that answers wrongly instead of not at all, or refuses much at a time; and what a day of many addresses costs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import pytest

from apps.chain.hostile import Hostile, TwoNodes, hostile_to, syncing
from apps.chain.rpc import MAX_ANSWER
from apps.payments.token import deploy, transfer
from tests.apps.addresses.desk import Desk, Node, counters
from tests.support import ports
from tests.support.matrix import count

pytestmark = pytest.mark.asyncio

OPEN = Callable[..., Awaitable[Desk]]

# How it misbehaves, and what the job's row must say about it.
MODES = {
    "empty logs": "a logs bloom that its logs do not fit",
    "some logs": "a logs bloom that its logs do not fit",
    "empty logs and blooms": "does not show all of them",
    "empty blocks": "the block's transactionsRoot says otherwise",
    "one transaction fewer": "used less gas than the block",
    "wrong roots": "the block's transactionsRoot says otherwise",
    "lagging index": "the node has 0 receipts of the 1 transactions of block 1",
    "no receipts": "the node has no receipts of block",
    "contradiction": "shows that block without it",
    "another chain": "the node for ethereum is one of chain 4711, not 1",
    "one in the middle left out": "are not numbered from the first to the last",
    "receipts of another block": "are of another block of that height",
    "another block": "where 1 was asked for",
    "another parent": "while it was being read",
    "a tip that is not there": "the node has no block",
    "transactions of another block": "are of another block of that height",
    "bomb in a bomb": "is packed as 'gzip, gzip'",
    "drip": "in time",
    "endless body": f"longer than {MAX_ANSWER} bytes",
}


@pytest.fixture
def hostile(node: Node) -> Iterator[Hostile]:
    with hostile_to(node.url) as hostile:
        yield hostile


@pytest.mark.parametrize("mode", ["empty logs", "contradiction", "another chain", "drip", "a tip that is not there"])
async def test_a_node_that_answers_wrongly_deletes_nothing_and_nothing_is_lost(
    open_desk: OPEN, node: Node, hostile: Hostile, mode: str
) -> None:
    await nothing_is_deleted(open_desk, node, hostile, mode)


@pytest.mark.proof(beside="tests/apps/chain/test_reader.py::test_a_lie_is_an_error")
@pytest.mark.parametrize("mode", MODES)
async def test_no_wrong_answer_deletes_anything(open_desk: OPEN, node: Node, hostile: Hostile, mode: str) -> None:
    await nothing_is_deleted(open_desk, node, hostile, mode)


async def nothing_is_deleted(open_desk: OPEN, node: Node, hostile: Hostile, mode: str) -> None:
    desk = await open_desk(
        RECONCILIATION_PROVIDERS=f"ethereum={hostile.url}",
        RECONCILIATION_PROVIDER_TIMEOUT="3s" if mode == "drip" else "20s",
    )
    ada, bob, eve = node.accounts()[:3]
    token = deploy(node, eve, node.mine)
    sent = [node.pay(ada, bob, 1), transfer(node, bob, token, ada, 2)]
    node.mine()
    await desk.monitor(ada)
    assert counters(await desk.reconcile(ada)) == ((2, 2, 0, 0), "completed")
    later = [node.pay(ada, bob, 3), transfer(node, bob, token, ada, 4)]
    node.mine()
    desk.forget()
    hostile.mode = mode
    job = await desk.reconcile(ada)
    assert (job["status"], job["soft_deleted"]) == ("pending", 0)
    assert MODES[mode] in job["error"]
    assert "apps." not in job["error"], "it is for people"
    assert set(await desk.here()) >= set(sent), "nothing is deleted"
    assert await desk.checkpoint(ada) == 2
    assert hostile.sent < 3 * MAX_ANSWER, "what is read of an answer is bounded"
    hostile.mode = None
    for _ in range(3):
        desk.clock.advance(minutes=10)
        await desk.sweep()
    job = await desk.show(job["id"])
    assert (job["status"], job["soft_deleted"], job["discrepancies"]) == ("completed", 0, 0)
    assert await desk.here() == {**dict.fromkeys(sent, 2), **dict.fromkeys(later, 3)}
    assert await desk.checkpoint(ada) == 3


async def test_a_node_that_serves_only_small_batches_is_read_in_small_pages(
    open_desk: OPEN, node: Node, hostile: Hostile
) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={hostile.url}")
    ada, bob = node.accounts()[:2]
    sent = node.pay(ada, bob, 1)
    node.mine(60)
    await desk.do("insert into addresses (address, chain, first_block) values (%s, 'ethereum', 0)", [ada])
    hostile.mode = "batch limit"
    assert counters(await desk.reconcile(ada)) == ((1, 1, 0, 0), "completed")
    assert await desk.here() == {sent: 1}


@pytest.mark.slow
async def test_a_day_of_many_addresses_costs_as_many_requests_as_one_of_few(
    open_desk: OPEN, node: Node, hostile: Hostile
) -> None:
    """Each block is read once for all of them, and so is the tip: requests grow with blocks, not with blocks times addresses."""
    few, many = 20, count(120, proof=2020)
    desk = await open_desk(
        RECONCILIATION_PROVIDERS=f"ethereum={hostile.url}",
        RECONCILIATION_TIP_FRESH_FOR="10s",
        RECONCILIATION_CONCURRENCY="50",
    )
    ada = node.accounts()[0]
    await monitored(desk, 0, few)
    sent = [node.pay(ada, address(number), 1) for number in (0, few - 1, few, many - 1)]
    cost = []
    for last, height in ((few, 100), (many, 100), (many, 200)):
        node.mine(height - node.height())
        await monitored(desk, 0, last)
        desk.forget()
        desk.clock.advance(minutes=1)
        hostile.requests.clear()
        await desk.do("update addresses set last_reconciled_block = 0")
        assert (await desk.tick())["scheduled"] == last
        await desk.sweep()
        cost.append(len(hostile.requests))
        done = await desk.all("select address, count(*) from reconciliation_jobs where status = 'completed' group by 1")
        assert len(done) == last, "each address has been compared"
        behind = await desk.all("select from addresses where last_reconciled_block is distinct from %s", [height])
        assert behind == []
    assert cost == [1 + 5, 1 + 5, 1 + 9], "the tip, and 101 or 201 blocks in pages of 25"
    per_address, per_block = (cost[1] - cost[0]) / (many - few), (cost[2] - cost[1]) / 100
    a_day = cost[1] + 20_000 * per_address + (7_200 - 100) * per_block
    assert a_day <= 300, "seconds, at one request a second, for 20,000 addresses and a day of Ethereum's blocks"
    assert set(await desk.here()) == set(sent)


def address(number: int) -> str:
    return f"0x{0xB0B << 140 | number:040x}"


async def monitored(desk: Desk, first: int, last: int) -> None:
    await desk.do(
        "insert into addresses (address, chain) select unnest(%s::text[]), 'ethereum' on conflict do nothing",
        [[address(number) for number in range(first, last)]],
    )


async def test_a_new_address_begins_at_the_tip_and_not_at_the_first_block(
    open_desk: OPEN, node: Node, hostile: Hostile
) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={hostile.url}")
    ada, bob = node.accounts()[:2]
    old = node.pay(ada, bob, 1)
    node.mine(200)
    new = node.pay(ada, bob, 2)
    node.mine()
    await desk.monitor(ada)
    job = await desk.reconcile(ada)
    assert (job["effective_mode"], job["from_block"], job["to_block"]) == ("full", 201 - 32, 201)
    assert await desk.here() == {new: 201}
    assert hostile.asked["eth_getBlockReceipts"] == 33
    job = await desk.reconcile(ada, "full")
    assert (job["from_block"], job["to_block"]) == (0, 201), "unless somebody asks for all of it"
    assert await desk.here() == {old: 1, new: 201}


async def test_a_new_address_does_not_begin_where_a_node_is_that_still_catches_up(
    open_desk: OPEN, node: Node, hostile: Hostile
) -> None:
    """Or all that came since would be read for it: the days of a whole chain, when the node has just been set up."""
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={hostile.url}")
    ada = node.accounts()[0]
    node.mine(200)
    await desk.monitor(ada)
    july_2015 = {**node.call("eth_getBlockByNumber", "0x0", True), "timestamp": "0x55ba4224"}
    hostile.mode = syncing(july_2015)
    job = await desk.reconcile(ada)
    assert job["status"] == "pending"
    assert "the node's newest block is of 2015-07-30: it is still catching up" in job["error"]
    assert await desk.checkpoint(ada) is None
    hostile.mode = None
    desk.clock.advance(minutes=10)
    await desk.sweep()
    job = await desk.show(job["id"])
    assert (job["status"], job["from_block"], job["to_block"]) == ("completed", 200 - 32, 200)


@pytest.mark.parametrize("behind", [1, 30, 100])
async def test_of_two_nodes_that_take_turns_the_one_that_lags_has_nothing_deleted(
    open_desk: OPEN, node: Node, hostile: Hostile, behind: int
) -> None:
    desk = await open_desk(RECONCILIATION_PROVIDERS=f"ethereum={hostile.url}", RECONCILIATION_PAGE_BLOCKS="10")
    ada, bob = node.accounts()[:2]
    node.mine(120)
    sent = [node.pay(ada, bob, 1)]
    node.mine()
    await desk.monitor(ada)
    assert counters(await desk.reconcile(ada)) == ((1, 1, 0, 0), "completed")
    sent.append(node.pay(ada, bob, 2))
    height = node.mine()
    hostile.mode = TwoNodes(node.call("eth_getBlockByNumber", hex(height - behind), True))
    for _ in range(4):
        job = await desk.job(ada)
        for _ in range(3):
            await desk.sweep()
            desk.clock.advance(minutes=3)
        assert (await desk.show(job))["status"] == "completed", "the other node has what the one lacks"
        assert {sent[0]} <= set(await desk.here()) <= set(sent)
    hostile.mode = None
    await desk.reconcile(ada)
    assert set(await desk.here()) == set(sent)
    assert {action for action, _ in await desk.audit()} <= {"added", "error"}, "and nothing was taken back meanwhile"


async def test_an_address_that_is_new_since_blocks_were_read_has_its_transactions(desk: Desk, node: Node) -> None:
    ada, bob = node.accounts()[:2]
    sent = node.pay(ada, bob, 1)
    node.mine(3)
    await desk.monitor(node.accounts()[5])
    await desk.reconcile(node.accounts()[5])
    await desk.monitor(bob)
    assert counters(await desk.reconcile(bob)) == ((1, 1, 0, 0), "completed")
    assert await desk.here() == {sent: 1}


async def test_a_dead_node_of_one_chain_does_not_stop_the_others(open_desk: OPEN, node: Node) -> None:
    with ports.reserve() as nobody:
        providers = f"polygon=http://127.0.0.1:{ports.number(nobody)},ethereum={node.url}"
        desk = await open_desk(RECONCILIATION_PROVIDERS=providers)
        node.mine(3)
        for chain in ("polygon", "ethereum"):
            for number in range(10):
                await desk.monitor(address(number), chain=chain)
                await desk.job(address(number), chain=chain)
        for _ in range(3):
            await desk.sweep()
    jobs = await desk.jobs()
    assert {job["status"] for job in jobs if job["chain"] == "ethereum"} == {"completed"}
    assert {job["status"] for job in jobs if job["chain"] == "polygon"} == {"pending"}
    assert [job["attempts"] for job in jobs if job["chain"] == "polygon"].count(0) >= 1, "and it is not asked in vain"


# -- tokens -----------------------------------------------------------------------------------------------------------


async def test_transfers_of_tokens_are_rows_of_their_own_and_follow_reorganisations(desk: Desk, node: Node) -> None:
    ada, bob, eve = node.accounts()[:3]
    token = deploy(node, eve, node.mine)
    await desk.monitor(ada, bob)
    before = node.call("evm_snapshot")
    paid = node.pay(bob, ada, 1, nonce=0)
    moved = transfer(node, eve, token, ada, 2**200)
    node.mine()
    assert counters(await desk.reconcile(ada)) == ((2, 2, 0, 0), "completed")
    assert counters(await desk.reconcile(bob)) == ((1, 0, 0, 0), "completed")
    row = await desk.one("select * from transactions where hash = %s", [moved])
    assert (row["token"], row["from_address"], row["to_address"], row["value"]) == (token, eve, ada, 2**200)
    assert (row["fee"], row["succeeded"]) == (0, True)
    node.call("evm_revert", before)
    node.mine(2)
    job = await desk.reconcile(ada)
    assert counters(job) == ((0, 0, 2, 0), "completed")
    assert await desk.here() == {}
    assert sorted(await desk.audit(job["id"])) == sorted([("soft_deleted", paid), ("soft_deleted", moved)])
    told = await desk.one(
        "select before from reconciliation_audit_log where job = %s and transaction = %s", [job["id"], moved]
    )
    assert (told["before"]["token"], told["before"]["value"]) == (token, str(2**200))


async def test_a_transaction_that_sends_itself_and_a_token_is_two_rows(desk: Desk, node: Node) -> None:
    ada, bob = node.accounts()[:2]
    token = deploy(node, bob, node.mine)
    await desk.monitor(ada)
    both = transfer(node, ada, token, bob, 5)
    node.mine()
    assert counters(await desk.reconcile(ada)) == ((2, 2, 0, 0), "completed")
    rows = await desk.all("select hash, token, to_address, value from transactions order by transfer")
    assert [(row["token"], row["to_address"], row["value"]) for row in rows] == [(None, token, 0), (token, bob, 5)]
    await desk.do("update transactions set value = 4 where token is not null")
    job = await desk.reconcile(ada)
    assert counters(job) == ((2, 0, 0, 1), "completed")
    assert await desk.audit(job["id"]) == [("discrepancy", both)]
