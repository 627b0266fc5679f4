"""Pages of a real chain, and answers that must not be taken for pages."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from apps.addresses.compare import Transaction
from apps.addresses.provider import Page, Provider
from apps.chain.kept import Reorganised
from apps.chain.reader import Reader
from apps.chain.rpc import ChainError, Rpc
from tests.apps.addresses.desk import FEE, Node
from tests.apps.addresses.meddler import Meddler

pytestmark = pytest.mark.asyncio


@pytest.fixture
def meddler(node: Node) -> Iterator[Meddler]:
    with Meddler(node.url) as meddler:
        yield meddler


class Turn:
    taken = 0

    async def __call__(self) -> None:
        self.taken += 1


@pytest.fixture
def turn() -> Turn:
    return Turn()


def provider_of(meddler: Meddler, turn: Turn, chain_id: int) -> Provider:
    """Nothing that it has read stays fresh."""

    async def nobody() -> frozenset[str]:
        return frozenset()

    reader = Reader(Rpc(meddler.url), chain_id, turn=turn, page=3)
    return Provider(reader, nobody, fresh_for=0, elapsed=lambda: 0)


@pytest_asyncio.fixture
async def provider(meddler: Meddler, turn: Turn) -> AsyncIterator[Provider]:
    provider = provider_of(meddler, turn, 1)
    yield provider
    await provider.aclose()


async def read(provider: Provider, address: str, first: int, last: int) -> list[Page]:
    provider._blocks.clear()
    return [page async for page in provider.pages(address, first, last)]


async def test_pages_have_all_blocks_in_order_and_one_request_each(
    provider: Provider, node: Node, turn: Turn, meddler: Meddler
) -> None:
    ada, bob, eve = node.accounts()[:3]
    node.mine(2)
    sent = node.pay(ada, bob, 5)
    node.pay(bob, eve, 6)
    node.mine()
    back = node.pay(bob, ada, 7)
    node.mine(5)
    pages = await read(provider, ada, 1, 8)
    assert [(page.first, page.last) for page in pages] == [(1, 3), (4, 6), (7, 8)]
    assert pages[0].transactions == [Transaction(sent, 3, ada, bob, 5, FEE, True)]
    assert pages[1].transactions == [Transaction(back, 4, bob, ada, 7, FEE, True)]
    assert turn.taken == len(meddler.asked_at) == 3 + 1, (
        "each request has waited for its turn, that for the tip as well"
    )


async def test_a_contract_that_is_made_has_no_receiver_and_a_failed_transaction_its_fee(
    provider: Provider, node: Node
) -> None:
    ada = node.accounts()[0]
    deployed = {
        "from": ada,
        "data": "0x60fe60005360016000f3",
        "gas": "0x30d40",
        "gasPrice": hex(2 * 10**9),
    }  # invalid code
    made = node.call("eth_sendTransaction", deployed)
    node.mine()
    receipt = node.call("eth_getTransactionReceipt", made)
    node.call("anvil_setCode", receipt["contractAddress"], "0xfe")
    failed = node.send(ada, receipt["contractAddress"], 0, gas="0x7530", gasPrice=hex(2 * 10**9))
    node.mine()
    first, second = (await read(provider, ada, 1, 2))[0].transactions
    assert (first.hash, first.to_address, first.succeeded) == (made, None, True)
    assert (second.hash, second.succeeded, second.fee) == (failed, False, 0x7530 * 2 * 10**9)


async def test_the_height_is_the_nodes(provider: Provider, node: Node, meddler: Meddler) -> None:
    node.mine(7)
    assert (await provider.tip()).number == 7
    assert len(meddler.asked_at) == 1


async def test_a_node_of_another_chain_is_refused(meddler: Meddler, turn: Turn) -> None:
    polygon = provider_of(meddler, turn, 137)
    with pytest.raises(ChainError, match="chain 1, not 137"):
        await polygon.tip()
    await polygon.aclose()


def nothing(_: Any, answers: Any) -> Any:
    return []


def no_block(_: Any, answers: Any) -> Any:
    return set_in(answers, 2, None)


def no_receipts(_: Any, answers: Any) -> Any:
    return set_in(answers, 5, None)


def fewer(_: Any, answers: Any) -> Any:
    return answers[:-1]


def without_transactions(_: Any, answers: Any) -> Any:
    return change(answers, 2, transactions=[])


def without_their_receipts(_: Any, answers: Any) -> Any:
    return set_in(answers, 5, [])


def another_block(_: Any, answers: Any) -> Any:
    return change(answers, 2, number="0x9")


def another_fork(_: Any, answers: Any) -> Any:
    return change(answers, 2, hash="0x" + "ab" * 32)


def nonsense_transactions(_: Any, answers: Any) -> Any:
    return change(answers, 2, transactions=["0x12"])


def nonsense_value(_: Any, answers: Any) -> Any:
    return change_transaction(answers, value="many")


def too_large_value(_: Any, answers: Any) -> Any:
    return change_transaction(answers, value="0x1" + "0" * 64)


def nonsense_sender(_: Any, answers: Any) -> Any:
    return change_transaction(answers, **{"from": "<script>"})


def nonsense_hash(_: Any, answers: Any) -> Any:
    return change(answers, 1, hash="0x12")


def text(_: Any, answers: Any) -> Any:
    return b"<html>502 Bad Gateway</html>"


def half(_: Any, answers: Any) -> Any:
    return b'[{"jsonrpc": "2.0", "id": 1, "resu'


def broken(_: Any, answers: Any) -> Any:
    return 500


def too_many(_: Any, answers: Any) -> Any:
    return 429


def refused(_: Any, answers: Any) -> Any:
    return [{**each, "result": None, "error": {"code": -32000, "message": "limit exceeded"}} for each in answers]


def null(_: Any, answers: Any) -> Any:
    return b"null"


def set_in(answers: Any, place: int, value: Any) -> Any:
    """The answers are in the order of the calls: the chain, blocks 1, 2, 3, then their receipts. Later requests are smaller."""
    altered = copy.deepcopy(answers)
    if len(altered) != 7:
        return altered
    altered[place]["result"] = value
    return altered


def change(answers: Any, place: int, **fields: Any) -> Any:
    if len(answers) != 7:
        return answers
    return set_in(answers, place, {**answers[place]["result"], **fields})


def change_transaction(answers: Any, **fields: Any) -> Any:
    if len(answers) != 7:
        return answers
    (transaction,) = answers[2]["result"]["transactions"]
    return change(answers, 2, transactions=[{**transaction, **fields}])


ALTERATIONS = [
    nothing,
    no_block,
    no_receipts,
    fewer,
    without_transactions,
    without_their_receipts,
    another_block,
    another_fork,
    nonsense_transactions,
    nonsense_value,
    too_large_value,
    nonsense_sender,
    nonsense_hash,
    text,
    half,
    broken,
    too_many,
    refused,
    null,
]


async def test_a_page_that_is_not_whole_is_an_error(provider: Provider, node: Node, meddler: Meddler) -> None:
    ada, bob = node.accounts()[:2]
    node.mine()
    node.pay(ada, bob, 5)
    node.mine(3)
    assert len((await read(provider, ada, 1, 3))[0].transactions) == 1, "without meddling it is a page"
    for alter in ALTERATIONS:
        meddler.alter = alter
        with pytest.raises(ChainError):
            pytest.fail(f"{alter.__name__} was taken for {await read(provider, ada, 1, 3)}")


async def test_a_reorganisation_between_two_pages_is_noticed(provider: Provider, node: Node) -> None:
    node.mine(6)
    pages = provider.pages(node.accounts()[0], 1, 6)
    await anext(pages)
    node.call("anvil_reorg", 5, [])
    with pytest.raises(Reorganised, match="reorganised at block 4"):
        await anext(pages)


async def test_a_reorganisation_since_the_last_page_of_an_earlier_attempt_is_noticed(
    provider: Provider, node: Node
) -> None:
    node.mine(6)
    ada = node.accounts()[0]
    first = (await read(provider, ada, 1, 3))[0]
    rest = [page async for page in provider.pages(ada, 4, 6, parent=first.last_hash)]
    assert [(page.first, page.last) for page in rest] == [(4, 6)]
    node.call("anvil_reorg", 5, [])
    with pytest.raises(Reorganised, match="reorganised at block 4"):
        [page async for page in provider.pages(ada, 4, 6, parent=first.last_hash)]


async def test_cached_blocks_from_before_a_reorganisation_are_not_used(provider: Provider, node: Node) -> None:
    """Also when the job ends at a block that is not the tip any more."""
    ada, bob = node.accounts()[:2]
    node.mine(3)
    node.pay(ada, bob, 5)
    node.mine(3)
    assert sum(len(page.transactions) for page in await read(provider, ada, 0, 6)) == 1
    node.call("anvil_reorg", 4, [])
    node.mine(2)
    assert [page.transactions async for page in provider.pages(ada, 0, 6)] == [[]]


async def test_a_height_that_is_none_is_an_error(provider: Provider, meddler: Meddler) -> None:
    for said in (None, "0x", "7", 7, "0x8000000000000000", [], "0x-1"):

        def alter(_: Any, answers: Any, said: Any = said) -> Any:
            altered = copy.deepcopy(answers)
            altered[1]["result"]["number"] = said
            return altered

        meddler.alter = alter
        with pytest.raises(ChainError):
            pytest.fail(f"{said} was taken for {await provider.tip()}")
