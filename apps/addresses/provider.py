"""What an EVM node says about an address, page by page. A page is complete, or it is an error: never taken for "nothing there".

One page is one request: a batch that asks for every block of it and for the receipts, which have the fees. Blocks must be the ones
asked for, each the parent of the next, also from page to page: what was read is one chain, not halves of two.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from apps.chain.rpc import Call, ChainUnavailable, Rpc, number, quantity

from .chains import canonical, known
from .compare import Transaction

LARGEST = 2**256 - 1
HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class Page:
    """The transactions of one address in these blocks, both included. `last_hash` is what the next block must follow."""

    first: int
    last: int
    last_hash: str
    transactions: Sequence[Transaction]


class WrongChain(ChainUnavailable):
    """The node is one of another chain, so it knows nothing about ours."""


class Reorganised(ChainUnavailable):
    """Blocks were replaced while they were read: what was read is of two chains."""


class Provider:
    """`turn` is waited for before each request."""

    def __init__(self, chain: str, rpc: Rpc, turn: Callable[[], Awaitable[None]], *, page_blocks: int = 100) -> None:
        self._chain = chain
        self._rpc = rpc
        self._turn = turn
        self._page_blocks = page_blocks

    async def aclose(self) -> None:
        await self._rpc.aclose()

    async def height(self) -> int:
        """The newest block. Raises ChainError."""
        await self._turn()
        chain_id, height = map(number, await self._rpc.batch([("eth_chainId", []), ("eth_blockNumber", [])]))
        expected = known(self._chain).chain_id
        if expected is not None and chain_id != expected:
            raise WrongChain(f"the node for {self._chain} is one of chain {chain_id}, not {expected}")
        return _at_most(height, HIGHEST)

    async def pages(
        self, address: str, first: int, last: int, *, parent: str | None = None
    ) -> AsyncGenerator[Page, None]:
        """All blocks from `first` to `last`, in order, the first of them following `parent`. Raises ChainError."""
        for start in range(first, last + 1, self._page_blocks):
            end = min(start + self._page_blocks - 1, last)
            blocks = await self._blocks(start, end)
            for block, _ in blocks:
                if parent is not None and block.get("parentHash") != parent:
                    raise Reorganised(f"the chain was reorganised at block {number(block['number'])} meanwhile")
                parent = block["hash"]
            found = [
                transaction
                for block, receipts in blocks
                for transaction in _transactions(block, receipts)
                if canonical(address) in (transaction.from_address, transaction.to_address)
            ]
            yield Page(start, end, blocks[-1][0]["hash"], found)

    async def _blocks(self, first: int, last: int) -> list[tuple[dict[str, Any], list[Any]]]:
        numbers = range(first, last + 1)
        calls: list[Call] = [("eth_getBlockByNumber", [quantity(each), True]) for each in numbers]
        calls += [("eth_getBlockReceipts", [quantity(each)]) for each in numbers]
        await self._turn()
        answers = await self._rpc.batch(calls)
        blocks, receipts = answers[: len(numbers)], answers[len(numbers) :]
        for expected, block, of_block in zip(numbers, blocks, receipts, strict=True):
            if not isinstance(block, dict) or not isinstance(of_block, list):
                raise ChainUnavailable(f"the node says nothing about block {expected}")
            if number(block.get("number")) != expected or not isinstance(block.get("transactions"), list):
                raise ChainUnavailable(f"the node answered something else than block {expected}")
            _hash(block.get("hash"))
        return list(zip(blocks, receipts, strict=True))


def _transactions(block: dict[str, Any], receipts: list[Any]) -> list[Transaction]:
    by_hash = {each.get("transactionHash"): each for each in receipts if isinstance(each, dict)}
    if len(by_hash) != len(receipts) or len(receipts) != len(block["transactions"]):
        raise ChainUnavailable(f"the receipts of block {number(block['number'])} are not those of its transactions")
    return [_transaction(block, each, by_hash) for each in block["transactions"]]


def _transaction(block: dict[str, Any], said: Any, receipts: dict[Any, Any]) -> Transaction:
    receipt = receipts.get(said.get("hash")) if isinstance(said, dict) else None
    if receipt is None or receipt.get("blockHash") != block["hash"]:
        raise ChainUnavailable(f"the receipts of block {number(block['number'])} are not those of its transactions")
    to = said.get("to")
    return Transaction(
        hash=_hash(said["hash"]),
        block_number=number(block["number"]),
        from_address=_address(said.get("from")),
        to_address=None if to is None else _address(to),  # it makes a contract
        value=_at_most(number(said.get("value")), LARGEST),
        fee=_at_most(number(receipt.get("gasUsed")) * number(receipt.get("effectiveGasPrice")), LARGEST),
        succeeded=number(receipt.get("status")) == 1,
    )


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("0x[0-9a-f]{64}", value):
        raise ChainUnavailable(f"the node said {str(value)[:40]!r} where a hash belongs")
    return value


def _address(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("0x[0-9a-fA-F]{40}", value):
        raise ChainUnavailable(f"the node said {str(value)[:60]!r} where an address belongs")
    return canonical(value)


def _at_most(value: int, most: int) -> int:
    if value > most:
        raise ChainUnavailable(f"the node said {hex(value)[:40]} where a smaller number belongs")
    return value
