"""Payments on an EVM chain: native coin that transactions send to the address, or the Transfer logs of one token.

What is looked at is what was *received*, never a balance: moving the money on is not undoing its payment. Coins that a contract
passes on inside a transaction leave neither trace, and are not seen.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from apps.chain.blocks import MAX_AMOUNT, MAX_BLOCK, Block, Inconsistent, Place, at_most, hash_
from apps.chain.keccak import has_checksum, is_checksum_right
from apps.chain.kept import Fresh, Kept, KeptBlocks
from apps.chain.reader import Reader
from apps.chain.rpc import ChainError, ChainUnavailable, Rpc, number

from .observe import Observation, ObserverError, Pace, Subject, Transfer

# Blocks at the end of the chain that are read anew each time; a reorganisation that goes deeper means beginning anew.
DEPTH = 64
MAX_BLOCKS = 200  # in one observation; after a long time away the rest follows in the next ones
MAX_KEPT = 512  # blocks
MAX_TIMES = 10_000
CLOCKS = timedelta(seconds=15)  # a block's time may lie so far before the moment in which it was made: a slot is 12 s

Account = tuple[str | None, str]  # a token (None: native coin) and a receiver


@dataclass(frozen=True)
class Sent:
    """To an account. `index` is -1 for native coin."""

    tx_hash: str
    index: int
    amount: int


Received = Mapping[Account, Sequence[Sent]]


@dataclass(frozen=True)
class Content:
    """What a block holds for us: what was received in it, and the names of all of its transactions."""

    received: Received
    hashes: frozenset[str]


@dataclass(frozen=True)
class View:
    """The chain at one look. `pending` is None when the node tells nothing of what waits to be mined."""

    tip: Place
    pending: Received | None


@dataclass(frozen=True)
class Part:
    """What is read of the chain in one observation: `blocks`, from the block `start` to the block `last`."""

    first: int
    start: int
    last: int
    blocks: Sequence[Kept[Content]]

    def has_read(self, place: Place) -> bool:
        return self.start <= place.number <= self.last

    def shows(self, tx_hash: str) -> bool:
        return any(tx_hash in block.content.hashes for block in self.blocks)


class EvmObserver:
    def __init__(self, url: str, chain_number: int, pace: Pace) -> None:
        rpc = Rpc(url, timeout=pace.timeout)
        self._reader = Reader(rpc, chain_number, name=f"eip155:{chain_number}")
        self._blocks = KeptBlocks(self._reader, _content, max_kept=MAX_KEPT)
        self._view = Fresh(self._look, pace.fresh_for.total_seconds(), pace.elapsed)
        self._times: dict[int, datetime] = {}
        self._highest: Place | None = None
        self._rewritten: str | None = None  # the tip at which that was noticed
        self._timeout = pace.timeout

    async def aclose(self) -> None:
        await self._reader.aclose()

    async def observe(self, subject: Subject) -> Observation:
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                return await self._observe(subject)
        except TimeoutError:
            raise ObserverError(f"the chain was not seen within {self._timeout.total_seconds():g} s") from None
        except ChainError as error:
            raise ObserverError(str(error)) from None

    async def address(self, text: str) -> str:
        """In lower case. Mixed case carries a checksum (EIP-55), which must be right."""
        if not re.fullmatch("0x[0-9a-fA-F]{40}", text):
            raise ValueError("an address is 0x and 40 hexadecimal digits")
        if has_checksum(text) and not is_checksum_right(text):
            raise ValueError("the address is mistyped: its upper and lower case do not fit its digits")
        return text.lower()

    async def _look(self) -> View:
        tip = await self._reader.tip()
        known = self._blocks.get(tip.number)
        highest = self._highest
        if highest is not None and tip.number < highest.number and known and known.place.hash == tip.hash:
            # A tip that we have passed already, on the same chain: another node answers, one that lags behind.
            raise ChainUnavailable(f"the node has fallen back from block {highest.number} to {tip.number}")
        pending = await self._reader.pending()
        return View(tip, None if pending is None else _waiting_natively(pending))

    async def _observe(self, subject: Subject) -> Observation:
        view = await self._view.get()
        _check_not_behind(view.tip, subject)
        part = await self._part(subject, view.tip)
        complete = part.last == view.tip.number or part.start > part.last
        # Below the block that we go on from everything stands, by its hash; beyond the last one we have not looked yet.
        kept = [
            known
            for known in subject.known
            if known.place is not None
            and (known.place.number < part.start or (not complete and known.place.number > part.last))
        ]
        mined = {each.key: each for each in [*kept, *_found(subject, part.blocks)]}
        unplaced = await self._unplaced(subject, view, part, {tx_hash for tx_hash, _ in mined}, complete)
        return Observation(
            tip=view.tip,
            transfers=[*mined.values(), *unplaced],
            complete=complete,
            # A node that is still catching up does not know yet where the request's time begins.
            first_block=part.first if view.tip.at >= _begins_at(subject) else None,
            scanned=_scanned(part.blocks, view.tip) or (subject.scanned if part.start > part.first else None),
        )

    async def _part(self, subject: Subject, tip: Place) -> Part:
        first = subject.first_block
        if first is None:
            return await self._beginning(subject, tip)
        start = first
        if subject.scanned is not None and subject.scanned[0] >= first:
            start = subject.scanned[0]
        part = await self._read(first, start, tip)
        if start > first and subject.scanned is not None and part.blocks[0].place.hash != subject.scanned[1]:
            # The chain has been rewritten further back than we read each time: also where the request's time begins.
            if self._rewritten != tip.hash:  # once for all requests: what is kept from before may be of the other chain
                self._rewritten = tip.hash
                self._times.clear()
                self._blocks.clear()
            part = await self._beginning(subject, tip, at_most=first)
        return part

    async def _beginning(self, subject: Subject, tip: Place, *, at_most: int = MAX_BLOCK) -> Part:
        """From some blocks before the request was made: those may yet be replaced by others, with the payment in them.

        What headers said of their time is believed only if the blocks themselves say the same: from a place too high a payment would
        never be seen, and from one too low the way to it would be too long.
        """
        moment = _begins_at(subject)
        n = await self._first_made_since(moment, tip)
        first = min(max(0, n - DEPTH), at_most)
        part = await self._read(first, first, tip)
        if any((each.place.at >= moment) != (each.place.number >= n) for each in part.blocks):
            self._times.clear()
            raise Inconsistent(f"the node gives blocks from {first} to {part.last} another time than their headers")
        return part

    async def _read(self, first: int, start: int, tip: Place) -> Part:
        last = min(tip.number, start + MAX_BLOCKS)
        end = tip.hash if last == tip.number else None
        blocks = await self._blocks.run(start, last, end=end) if start <= last else []
        if end is not None:
            self._highest = tip  # now it is there, and not only named
        return Part(first, start, last, blocks)

    async def _unplaced(
        self, subject: Subject, view: View, part: Part, mined: set[str], complete: bool
    ) -> list[Transfer]:
        """What waits to be mined, or may be further on than we have read. Tokens show only when they are mined."""
        waiting: dict[tuple[str, int], Transfer] = {}
        if view.pending is not None:
            for sent in view.pending.get(_account(subject), ()):
                waiting[sent.tx_hash, sent.index] = Transfer(sent.tx_hash, sent.index, sent.amount, None)
        # A node shows the next block, not all that waits; and what is not where it was may have moved. So it is asked by name.
        others = [
            Transfer(each.tx_hash, each.index, each.amount, None)
            for each in subject.known
            if (each.place is None or part.has_read(each.place))
            and each.tx_hash not in mined
            and each.key not in waiting
        ]
        names = sorted({each.tx_hash for each in others})
        where = dict(zip(names, await self._reader.find(names), strict=True))
        for each in others:
            there = where[each.tx_hash]
            if there is None:
                if not complete:  # a node need not know yet what waits; what is not found until the end is gone
                    waiting[each.key] = each
            elif there.block is None or there.block > part.last:
                waiting[each.key] = each
            else:
                self._check_shown(each.tx_hash, there.block, part)
        # Some nodes give the newest block for the one to come: what failed in it waits no longer.
        return [each for each in waiting.values() if each.tx_hash not in mined and not part.shows(each.tx_hash)]

    def _check_shown(self, tx_hash: str, n: int, part: Part) -> None:
        """A transaction that the node has in a block which we have read is in that block, or the node contradicts itself."""
        if part.start <= n <= part.last and tx_hash not in part.blocks[n - part.start].content.hashes:
            self._blocks.clear()
            raise Inconsistent(f"the node has transaction {tx_hash} in block {n}, and shows block {n} without it")

    async def _first_made_since(self, moment: datetime, tip: Place) -> int:
        """The number of the block; of the one after the tip, when that was made before."""
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
            self._times[n] = (await self._reader.header(n)).at
            while len(self._times) > MAX_TIMES:
                del self._times[next(iter(self._times))]
        return self._times[n]


def _begins_at(subject: Subject) -> datetime:
    return subject.since - CLOCKS


def _account(subject: Subject) -> Account:
    """However it was written into the table, it is looked up in lower case."""
    return None if subject.token is None else subject.token.lower(), subject.address.lower()


def _content(block: Block) -> Content:
    """Native coin of what succeeded, and tokens. Payments to oneself are none."""
    received: dict[Account, list[Sent]] = defaultdict(list)
    for each in block.transactions:
        if each.succeeded and each.value and each.to is not None and each.to != each.sender:
            received[None, each.to].append(Sent(each.hash, -1, each.value))
        for sent in each.transfers:
            received[sent.token, sent.receiver].append(Sent(each.hash, sent.index, sent.amount))
    return Content(dict(received), frozenset(each.hash for each in block.transactions))


def _waiting_natively(block: Any) -> Received:
    """What the transactions of a block that is not mined send. Nothing is final about it, and it has no receipts."""
    received: dict[Account, list[Sent]] = defaultdict(list)
    transactions = block.get("transactions") if isinstance(block, dict) else None
    if not isinstance(transactions, list) or not all(isinstance(each, dict) for each in transactions):
        raise ChainUnavailable("the node returned the pending block without its transactions")
    for each in transactions:
        amount, to, name = at_most(number(each.get("value")), MAX_AMOUNT), each.get("to"), hash_(each.get("hash"))
        if amount and isinstance(to, str) and to.lower() != str(each.get("from")).lower():
            received[None, to.lower()].append(Sent(name, -1, amount))
    return dict(received)


def _found(subject: Subject, blocks: Sequence[Kept[Content]]) -> list[Transfer]:
    account = _account(subject)
    return [
        Transfer(sent.tx_hash, sent.index, sent.amount, block.place)
        for block in blocks
        if block.place.at >= _begins_at(subject)
        for sent in block.content.received.get(account, ())
    ]


def _check_not_behind(tip: Place, subject: Subject) -> None:
    """What we have seen at a height that this node has not reached is not gone: the node is behind."""
    heights = [each.place.number for each in subject.known if each.place is not None]
    heights += [subject.scanned[0]] if subject.scanned is not None else []
    if max(heights, default=0) > tip.number:
        raise ObserverError(f"the node is at block {tip.number}, behind block {max(heights)} that was seen before")


def _scanned(blocks: Sequence[Kept[Content]], tip: Place) -> tuple[int, str] | None:
    """The last block that is deep enough in the chain not to be read again."""
    deep = [block.place for block in blocks if block.place.number <= tip.number - DEPTH]
    return (deep[-1].number, deep[-1].hash) if deep else None
