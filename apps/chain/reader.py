"""One node of one chain, asked strictly: every answer is checked, and every request names the chain it is meant for.

Blocks are read in pages, a page in one request. A node that refuses a page, or is too slow for it, is asked for half of it; what
it can answer is remembered, and tried to be raised now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from .blocks import Block, Inconsistent, NoSuchBlock, Place, block, hash_, place
from .rpc import METHOD_NOT_FOUND, Call, ChainRefused, ChainSlow, ChainTooMuch, ChainUnavailable, Rpc, number, quantity

T = TypeVar("T")

PAGE = 25  # blocks, each with its receipts
GROW_AFTER = 20  # pages that were answered since the last refusal


class WrongChain(ChainUnavailable):
    """The node is one of another chain, so it knows nothing about ours."""


@dataclass(frozen=True)
class Whereabouts:
    """Where a node has a transaction. `block` is None while it waits to be mined."""

    block: int | None


async def at_once() -> None:
    pass


class Reader:
    """`turn` is waited for before each request. Without a `chain_number` any chain will do, and it must stay the same one."""

    def __init__(
        self,
        rpc: Rpc,
        chain_number: int | None,
        *,
        name: str = "the chain",
        turn: Callable[[], Awaitable[None]] = at_once,
        page: int = PAGE,
    ) -> None:
        self._rpc = rpc
        self._chain_number = chain_number
        self._name = name
        self._turn = turn
        self._max_page = self._page = page
        self._answered = 0
        self._receipts_by_block = True

    async def aclose(self) -> None:
        await self._rpc.aclose()

    async def tip(self) -> Place:
        """The newest block. Raises ChainError, as all of these do."""
        (latest,) = await self._ask([("eth_getBlockByNumber", ["latest", False])])
        return place(latest)

    async def header(self, n: int) -> Place:
        return await _twice(partial(self._header, n))

    async def _header(self, n: int) -> Place:
        (told,) = await self._ask([("eth_getBlockByNumber", [quantity(n), False])])
        return place(told, n)

    async def pending(self) -> Any:
        """The block that the node would mine next, as it says; None when it does not say."""
        try:
            (told,) = await self._ask([("eth_getBlockByNumber", ["pending", True])])
        except ChainRefused:  # many nodes do not show what waits
            return None
        return told

    async def find(self, hashes: Sequence[str]) -> list[Whereabouts | None]:
        """Where each of these transactions is; None for one that the node does not know."""
        found: list[Whereabouts | None] = []
        while len(found) < len(hashes):
            part = hashes[len(found) : len(found) + 2 * self._page]
            try:
                told = await self._ask([("eth_getTransactionByHash", [each]) for each in part])
            except (ChainTooMuch, ChainRefused):
                self._refused(len(part) // 2)
                if len(part) == 1:
                    raise
                continue
            found += [_whereabouts(each, asked) for each, asked in zip(told, part, strict=True)]
        return found

    async def read(self, first: int, last: int) -> list[Block]:
        """The blocks from `first` on: as many as the node answers at a time, at least one, at most up to `last`."""
        while True:
            numbers = range(first, min(first + self._page - 1, last) + 1)
            try:
                blocks = await _twice(partial(self._read, numbers))
            except (asyncio.CancelledError, ChainSlow):
                self._refused(len(numbers))  # the next attempt asks for less
                raise
            except Inconsistent:
                raise
            except (ChainTooMuch, ChainRefused):
                self._refused(len(numbers))
                if len(numbers) == 1:
                    raise
                continue
            self._accepted(len(numbers))
            return blocks

    def _refused(self, blocks: int) -> None:
        self._page, self._answered = max(1, min(self._page, blocks) // 2), 0

    def _accepted(self, blocks: int) -> None:
        if blocks == self._page < self._max_page:
            self._answered += 1
            if self._answered >= GROW_AFTER:
                self._page, self._answered = min(2 * self._page, self._max_page), 0

    async def _read(self, numbers: Sequence[int]) -> list[Block]:
        calls: list[Call] = [("eth_getBlockByNumber", [quantity(n), True]) for n in numbers]
        if self._receipts_by_block:
            try:
                told = await self._ask([*calls, *(("eth_getBlockReceipts", [quantity(n)]) for n in numbers)])
                blocks, receipts = told[: len(numbers)], told[len(numbers) :]
            except ChainRefused as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                self._receipts_by_block = False
        if not self._receipts_by_block:
            blocks = await self._ask(calls)
            receipts = [await self._receipts(each) for each in blocks]
        return [block(*each) for each in zip(blocks, receipts, numbers, strict=True)]

    async def _receipts(self, told: Any) -> list[Any]:
        """One by one, from a node that does not have them by block."""
        transactions = told.get("transactions") if isinstance(told, dict) else None
        hashes = [each.get("hash") if isinstance(each, dict) else None for each in transactions or []]
        receipts: list[Any] = []
        for start in range(0, len(hashes), 2 * self._page):
            part = hashes[start : start + 2 * self._page]
            receipts += await self._ask([("eth_getTransactionReceipt", [each]) for each in part])
        return receipts

    async def _ask(self, calls: Sequence[Call]) -> list[Any]:
        """In one request, which also asks which chain it is: another node may have come in this one's place."""
        if not calls:
            return []
        await self._turn()
        chain, *told = await self._rpc.batch([("eth_chainId", []), *calls])
        if self._chain_number is None:
            self._chain_number = number(chain)
        if number(chain) != self._chain_number:
            raise WrongChain(f"the node for {self._name} is one of chain {number(chain)}, not {self._chain_number}")
        return told


async def _twice(ask: Callable[[], Awaitable[T]]) -> T:
    """A load balancer may have asked a node that lags: the next one may have the block."""
    try:
        return await ask()
    except NoSuchBlock:
        return await ask()


def _whereabouts(told: Any, asked: str) -> Whereabouts | None:
    if told is None:
        return None
    if not isinstance(told, dict) or told.get("hash") != asked:
        raise ChainUnavailable(f"the node answered something else than transaction {asked}")
    where = [told.get(name, "left out") for name in ("blockHash", "blockNumber")]
    if where == [None, None]:  # anything else does not say that it waits
        return Whereabouts(None)
    hash_(where[0])
    return Whereabouts(number(where[1]))
