"""The blocks of an EVM chain, read once for all requests of this process, and never trusted further than their hashes reach.

Blocks are kept by number. Each names its parent's hash, so a run of blocks that ends in the tip is the chain: where the links
do not fit, the older block is stale and read again. Whatever the node says that cannot be so is an ObserverError.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from apps.chain.rpc import ChainError, ChainRefused, Rpc, number, quantity

from .observe import ObserverError, Place

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # Transfer(address,address,uint256)
AT_A_TIME = 50  # blocks asked for in one request
MOST_KEPT = 512  # blocks


@dataclass(frozen=True)
class Sent:
    """To an address: native coin, of which it is not known yet whether it succeeded, or a token's.

    `index` is -1, or counts the transfers of one token to one receiver in a transaction: a position in the block would change
    when the transaction is mined again elsewhere.
    """

    tx_hash: str
    index: int
    amount: int


Received = Mapping[tuple[str | None, str], Sequence[Sent]]  # by token (None: native) and receiver


@dataclass(frozen=True)
class Block:
    place: Place
    parent: str
    received: Received
    failed: dict[str, bool] = field(default_factory=dict)  # of the native transfers that somebody has asked about


@dataclass(frozen=True)
class View:
    """The chain at one look. `pending` is None when the node tells nothing of what waits to be mined."""

    tip: Place
    pending: Received | None


class Blocks:
    """`fresh_for`: so many seconds one look at the tip serves every row, and so does one failure to have it."""

    def __init__(self, rpc: Rpc, chain_number: int, fresh_for: float, elapsed: Callable[[], float]) -> None:
        self._rpc = rpc
        self._chain_number = chain_number
        self._fresh_for = fresh_for
        self._elapsed = elapsed
        self._blocks: dict[int, Block] = {}
        self._times: dict[int, datetime] = {}
        self._reading = asyncio.Lock()
        self._view: View | None = None
        self._failure: str | None = None
        self._looked = float("-inf")

    async def view(self) -> View:
        """The tip, almost as it is now. A node that cannot be asked is not asked by the next thousand rows in vain."""
        async with self._reading:
            if self._elapsed() - self._looked >= self._fresh_for:
                self._failure = "the node did not answer in time"  # unless we get further than this
                try:
                    self._view = await self._look()
                    self._failure = None
                except (ChainError, ObserverError) as error:
                    self._failure = str(error)
                finally:
                    self._looked = self._elapsed()
            if self._failure is not None or self._view is None:
                raise ObserverError(self._failure)
            return self._view

    async def _look(self) -> View:
        chain, latest = await self._rpc.batch([("eth_chainId", []), ("eth_getBlockByNumber", ["latest", False])])
        if number(chain) != self._chain_number:
            raise ObserverError(f"the node is of chain {number(chain)}, not {self._chain_number}")
        tip = _place(latest)
        self._check_tip(tip)
        try:
            pending = await self._rpc.call("eth_getBlockByNumber", "pending", True)
        except ChainRefused:  # many nodes do not show what waits
            pending = None
        return View(tip, None if pending is None else _native(pending))

    def _check_tip(self, tip: Place) -> None:
        """A tip that we have passed already, on the same chain: another node answers, one that lags behind."""
        known = self._blocks.get(tip.number)
        if self._view is not None and tip.number < self._view.tip.number and known and known.place.hash == tip.hash:
            raise ObserverError(f"the node has fallen back from block {self._view.tip.number} to {tip.number}")

    async def run(self, first: int, last: int, tip: Place) -> list[Block]:
        """The blocks from first to last, linked to one another, and to the tip if they reach it."""
        try:
            for start in range(first, last + 1, AT_A_TIME):
                async with (
                    self._reading
                ):  # let go in between: a row that reads far back does not keep the others waiting
                    numbers = range(start, min(start + AT_A_TIME, last + 1))
                    await self._read([n for n in numbers if n not in self._blocks])
            async with self._reading:
                await self._read([n for n in range(first, last + 1) if n not in self._blocks])
                await self._link(first, last, tip)
                blocks = [self._blocks[n] for n in range(first, last + 1)]
                self._forget()
        except ChainError as error:
            raise ObserverError(str(error)) from None
        return blocks

    async def _link(self, first: int, last: int, tip: Place) -> None:
        expected = tip.hash if last == tip.number else self._blocks[last].place.hash
        for n in range(last, first - 1, -1):
            if self._blocks[n].place.hash != expected:
                await self._read([n])
                if self._blocks[n].place.hash != expected:
                    self._blocks.clear()  # which of the two is wrong, nobody can tell
                    raise ObserverError(f"the chain was reorganised at block {n} while it was being read")
            expected = self._blocks[n].parent

    async def _read(self, numbers: Sequence[int]) -> None:
        told = await self._rpc.batch([("eth_getBlockByNumber", [quantity(n), True]) for n in numbers])
        places = [_place(each, n) for n, each in zip(numbers, told, strict=True)]
        logs = await self._rpc.batch(
            [("eth_getLogs", [{"blockHash": place.hash, "topics": [TRANSFER]}]) for place in places]
        )
        for place, block, its_logs in zip(places, told, logs, strict=True):
            received = {**_native(block), **_tokens(its_logs, place)}
            self._blocks.pop(place.number, None)  # so that it is the newest to be forgotten
            self._blocks[place.number] = Block(place, _text(block, "parentHash"), received)

    def _forget(self) -> None:
        while len(self._blocks) > MOST_KEPT:
            del self._blocks[next(iter(self._blocks))]

    async def succeeded(self, block: Block, sent: Sequence[Sent]) -> list[Sent]:
        """Of native transfers, those that were not reverted."""
        unknown = [each.tx_hash for each in sent if each.tx_hash not in block.failed]
        try:
            receipts = await self._rpc.batch([("eth_getTransactionReceipt", [tx_hash]) for tx_hash in unknown])
            for tx_hash, receipt in zip(unknown, receipts, strict=True):
                if _text(receipt, "blockHash") != block.place.hash:
                    raise ObserverError(f"transaction {tx_hash} is in another block now")
                block.failed[tx_hash] = number(receipt.get("status")) != 1
        except ChainError as error:
            raise ObserverError(str(error)) from None
        return [each for each in sent if not block.failed[each.tx_hash]]

    async def waiting(self, tx_hashes: Sequence[str], read_to: int) -> set[str]:
        """Of these, those that wait, or were mined beyond the block that we have read to. What failed does not wait."""
        try:
            known = await self._rpc.batch([("eth_getTransactionByHash", [tx_hash]) for tx_hash in tx_hashes])
        except ChainError as error:
            raise ObserverError(str(error)) from None
        return {tx_hash for tx_hash, told in zip(tx_hashes, known, strict=True) if _waits(told, read_to)}

    async def first_since(self, moment: datetime, tip: Place) -> int:
        """The first block that was made at this moment or later; the one after the tip, if there is none."""
        low, high = 0, tip.number + 1
        while low < high:
            middle = (low + high) // 2
            if await self._made_at(middle) < moment:
                low = middle + 1
            else:
                high = middle
        return low

    async def _made_at(self, n: int) -> datetime:
        if n not in self._times:
            try:
                self._times[n] = _place(await self._rpc.call("eth_getBlockByNumber", quantity(n), False), n).at
            except ChainError as error:
                raise ObserverError(str(error)) from None
            while len(self._times) > 20 * MOST_KEPT:
                del self._times[next(iter(self._times))]
        return self._times[n]


def _place(told: Any, expected: int | None = None) -> Place:
    if told is None:
        raise ObserverError(f"the node has no block {'at all' if expected is None else expected}")
    found = number(_text(told, "number"))
    if expected is not None and found != expected:
        raise ObserverError(f"the node answered with block {found} where {expected} was asked for")
    try:
        made_at = datetime.fromtimestamp(number(_text(told, "timestamp")), UTC)
    except (OverflowError, ValueError, OSError):
        raise ObserverError(f"the node dates block {found} as nobody can") from None
    return Place(found, _text(told, "hash"), made_at)


def _waits(transaction: Any, read_to: int) -> bool:
    if transaction is None:
        return False
    _text(transaction, "hash")  # or it is none
    return transaction.get("blockHash") is None or number(transaction.get("blockNumber")) > read_to


def _native(block: Any) -> Received:
    """What its transactions send. Payments to oneself are none."""
    received: dict[tuple[str | None, str], list[Sent]] = defaultdict(list)
    transactions = block.get("transactions") if isinstance(block, dict) else None
    if not isinstance(transactions, list):
        raise ObserverError("the node told of a block without its transactions")
    for transaction in transactions:
        sender, amount = _text(transaction, "from"), number(_text(transaction, "value"))
        to = transaction.get("to")  # null where a contract is made
        if amount and isinstance(to, str) and to.lower() != sender.lower():
            received[None, to.lower()].append(Sent(_text(transaction, "hash"), -1, amount))
    return dict(received)


def _tokens(logs: Any, place: Place) -> Received:
    """Transfers of tokens. Anybody may log what only looks like one: other shapes are passed over, not complained about."""
    received: dict[tuple[str | None, str], list[Sent]] = defaultdict(list)
    if not isinstance(logs, list):
        raise ObserverError(f"the node told nothing of the logs of block {place.number}")
    for log in logs:
        if _text(log, "blockHash") != place.hash or log.get("removed"):
            raise ObserverError(f"the node told of logs of another block than {place.number}")
        topics, data = log.get("topics"), _text(log, "data")
        if not isinstance(topics, list) or len(topics) != 3 or len(data) != 66:
            continue
        amount, sender, receiver = number(data), str(topics[1])[-40:].lower(), str(topics[2])[-40:].lower()
        if amount and sender != receiver:
            of_receiver = received[_text(log, "address").lower(), f"0x{receiver}"]
            tx_hash = _text(log, "transactionHash")
            of_receiver.append(Sent(tx_hash, sum(each.tx_hash == tx_hash for each in of_receiver), amount))
    return dict(received)


def _text(told: Any, name: str) -> str:
    value = told.get(name) if isinstance(told, dict) else None
    if not isinstance(value, str):
        raise ObserverError(f"the node's answer cannot be read: {name} is missing")
    return value
