"""Reading blocks of a real node, and of one that misbehaves."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from apps.chain.anvil import Anvil
from apps.chain.blocks import Block, Inconsistent, block
from apps.chain.hostile import BATCH_LIMIT, BOMB, BOMBS, LIES, Hostile, bomb, hostile_to
from apps.chain.kept import KeptBlocks, Reorganised
from apps.chain.reader import PAGE, Reader, Whereabouts, WrongChain
from apps.chain.rpc import ChainRefused, ChainSlow, ChainTooMuch, ChainUnavailable, Rpc
from apps.payments.token import deploy, transfer

pytestmark = pytest.mark.asyncio

BLOCKS = 40


@pytest.fixture(scope="module")
def node() -> Iterator[Anvil]:
    """With native and token transfers in block 2."""
    with Anvil() as node:
        ada, bob = node.accounts()[:2]
        token = deploy(node, ada, node.mine)
        node.send(ada, bob, 7)
        transfer(node, ada, token, bob, 5)
        transfer(node, bob, token, ada, 6)
        node.mine(BLOCKS - 1)
        yield node


@pytest.fixture
def hostile(node: Anvil) -> Iterator[Hostile]:
    with hostile_to(node.url) as hostile:
        yield hostile


@pytest_asyncio.fixture
async def reader(hostile: Hostile) -> AsyncIterator[Reader]:
    reader = Reader(Rpc(hostile.url, timeout=timedelta(seconds=20)), 31337)
    yield reader
    await reader.aclose()


async def read_all(reader: Reader) -> list[Block]:
    blocks: list[Block] = []
    while len(blocks) <= BLOCKS:
        blocks += await reader.read(len(blocks), BLOCKS)
    return blocks


async def test_a_page_is_one_request_and_has_transactions_with_their_transfers(
    reader: Reader, hostile: Hostile, node: Anvil
) -> None:
    blocks = await read_all(reader)
    assert [each.place.number for each in blocks] == list(range(BLOCKS + 1))
    assert len(hostile.requests) == 2
    ada, bob = node.accounts()[:2]
    sent = {(each.sender, each.to, each.value) for each in blocks[2].transactions if each.value}
    assert sent == {(ada, bob, 7)}
    tokens = [(moved.sender, moved.amount, moved.index) for each in blocks[2].transactions for moved in each.transfers]
    assert sorted(tokens) == sorted([(ada, 5, 0), (bob, 6, 0)])


async def test_a_page_that_is_refused_is_halved_until_it_is_answered_and_then_remembered(
    reader: Reader, hostile: Hostile
) -> None:
    hostile.mode = "batch limit"
    assert len(await read_all(reader)) == BLOCKS + 1
    refused = [calls for calls in hostile.requests if calls > BATCH_LIMIT]
    assert refused == [1 + 2 * PAGE, 1 + 2 * (PAGE // 2), 1 + 2 * (PAGE // 4)], "and never again"


async def test_a_refusal_of_everything_is_told_in_the_nodes_words(hostile: Hostile, node: Anvil) -> None:
    hostile.mode = "batch limit"
    async with Rpc(hostile.url) as rpc:
        with pytest.raises(ChainTooMuch, match="13 calls at a time: batches of more than 12 calls are not served"):
            await rpc.batch([("eth_chainId", [])] * (BATCH_LIMIT + 1))


@pytest.mark.parametrize("mode", LIES)
async def test_a_lie_is_an_error(reader: Reader, hostile: Hostile, mode: str) -> None:
    hostile.mode = mode
    if mode == "contradiction":  # only what was known before tells
        assert (await reader.read(2, 2))[0].transactions == ()
    elif mode == "another parent":
        with pytest.raises(Reorganised):
            await KeptBlocks(reader, lambda each: each, max_kept=10).run(1, 2)
    elif mode == "a tip that is not there":
        with pytest.raises(ChainUnavailable, match="has no block"):
            await reader.header((await reader.tip()).number)
    else:
        with pytest.raises(WrongChain if mode == "another chain" else Inconsistent):
            pytest.fail(str(await reader.read(2, 2)))


async def test_a_node_that_does_not_know_receipts_by_block_is_asked_for_each(
    node: Anvil, monkeypatch: pytest.MonkeyPatch
) -> None:
    rpc = Rpc(node.url)
    ask = rpc.batch

    async def without(calls: Any) -> Any:
        if any(method == "eth_getBlockReceipts" for method, _ in calls):
            raise ChainRefused("eth_getBlockReceipts", -32601, "the method does not exist")
        return await ask(calls)

    there = Reader(Rpc(node.url), 31337)
    monkeypatch.setattr(rpc, "batch", without)
    old = Reader(rpc, 31337)
    assert await old.read(0, 5) == await there.read(0, 5)
    await old.aclose()
    await there.aclose()


PARTS_OF_A_TRANSACTION = {
    "a block without its hash": {"blockNumber": "0x2"},
    "a block whose hash is null": {"blockNumber": "0x2", "blockHash": None},
    "a block without its number": {"blockHash": "0x" + "ab" * 32},
    "nothing of a block": {},
}


@pytest.mark.parametrize("part", PARTS_OF_A_TRANSACTION)
async def test_a_transaction_waits_only_if_the_node_says_that_it_is_in_no_block(
    reader: Reader, hostile: Hostile, part: str
) -> None:
    """What is taken for waiting is taken for gone from its block."""
    asked = "0x" + "12" * 32
    waits = {"hash": asked, "blockHash": None, "blockNumber": None}
    hostile.mode = lambda call, result: waits if call["method"] == "eth_getTransactionByHash" else result
    assert await reader.find([asked]) == [Whereabouts(None)]
    waits = {"hash": asked, **PARTS_OF_A_TRANSACTION[part]}
    with pytest.raises(ChainUnavailable):
        await reader.find([asked])


@pytest.mark.parametrize(
    ("gas_used", "succeeded"),
    [(21_000, True), (50_000, True), (100_000, False)],
    ids=["plain", "some left", "all used"],
)
async def test_receipts_from_before_byzantium_have_a_root_instead_of_a_status(
    node: Anvil, gas_used: int, succeeded: bool
) -> None:
    told = node.call("eth_getBlockByNumber", "0x1", True)
    (receipt,) = node.call("eth_getBlockReceipts", "0x1")
    (transaction,) = told["transactions"]
    del receipt["status"]
    old = {**receipt, "root": "0x" + "ab" * 32, "gasUsed": hex(gas_used)}
    given = {**told, "gasUsed": hex(gas_used), "transactions": [{**transaction, "gas": hex(100_000)}]}
    assert block(given, [old], 1).transactions[0].succeeded is succeeded
    with pytest.raises(ChainUnavailable):
        block(given, [receipt], 1)


async def test_a_drip_ends_in_time_and_an_endless_answer_at_a_size(hostile: Hostile) -> None:
    async with Rpc(hostile.url, timeout=timedelta(seconds=0.5), max_answer=2**20) as rpc:
        hostile.mode = "drip"
        with pytest.raises(ChainSlow, match="did not answer eth_chainId in time"):
            await rpc.call("eth_chainId")
    async with Rpc(hostile.url, timeout=timedelta(seconds=20), max_answer=2**20) as rpc:
        hostile.mode = "endless body"
        with pytest.raises(ChainTooMuch, match="longer than 1048576 bytes"):
            await rpc.call("eth_chainId")


@pytest.mark.parametrize("mode", BOMBS)
async def test_an_answer_that_grows_when_it_is_unpacked_ends_at_a_size(hostile: Hostile, mode: str) -> None:
    hostile.mode = mode
    bomb(BOMBS[mode])
    tracemalloc.start()
    try:
        async with Rpc(hostile.url, timeout=timedelta(seconds=20), max_answer=2**20) as rpc:
            with pytest.raises(ChainUnavailable):
                await rpc.call("eth_chainId")
        assert tracemalloc.get_traced_memory()[1] < BOMB / 4, "it was never all in memory"
    finally:
        tracemalloc.stop()


async def test_kept_blocks_that_were_replaced_are_read_again_and_only_those(node: Anvil) -> None:
    with Anvil() as chain, hostile_to(chain.url) as counted:
        chain.mine(100)
        reader = Reader(Rpc(counted.url), 31337)
        kept = KeptBlocks(reader, lambda each: len(each.transactions), max_kept=1000)
        before = await kept.run(0, 100, end=(await reader.tip()).hash)
        counted.asked.clear()
        assert await kept.run(0, 100, end=before[-1].place.hash) == before
        assert not counted.asked, "everything was kept"
        chain.call("anvil_reorg", 30, [])
        chain.mine(2)
        after = await kept.run(0, 102, end=(await reader.tip()).hash)
        assert after[:71] == before[:71]
        assert all(one.place.hash != other.place.hash for one, other in zip(after[71:], before[71:], strict=False))
        assert counted.asked["eth_getBlockReceipts"] <= 2 + 2 * PAGE
        with pytest.raises(Reorganised):
            await kept.run(0, 102, end="0x" + "12" * 32)
        await reader.aclose()
