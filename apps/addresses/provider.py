"""What an EVM node says about addresses, stretch by stretch. A stretch is complete, or it is an error: never taken for "nothing there".

Each block is read once for all addresses of its chain (apps/chain/reader.py, which also says what is believed); of a block, the
transactions of our addresses are kept. So a day's blocks are read by the first job, and the other jobs find them here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from apps.chain.blocks import Block, Place
from apps.chain.kept import Fresh, Kept, KeptBlocks, Reorganised
from apps.chain.reader import Reader, Whereabouts

from .chains import canonical
from .compare import Transaction

MAX_KEPT = 100_000  # blocks: two days of a quick chain
MAX_ENDS = 16

Addresses = frozenset[str]


@dataclass(frozen=True)
class Page:
    """The transactions of one address in these blocks, both included. `last_hash` is what the next block must follow."""

    first: int
    last: int
    last_hash: str
    transactions: Sequence[Transaction]


@dataclass(frozen=True, slots=True)
class Content:
    """Of these addresses, the transactions of those that have any in the block. So a job looks only at those of its own address."""

    addresses: Addresses
    transactions: Mapping[str, Sequence[Transaction]]


class Provider:
    """`addresses` gives those of this chain. For `fresh_for` seconds one look at the tip of the chain serves every job."""

    def __init__(
        self,
        reader: Reader,
        addresses: Callable[[], Awaitable[Addresses]],
        *,
        fresh_for: float,
        elapsed: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._load = addresses
        self._addresses: Addresses = frozenset()
        self._fresh_for = fresh_for
        self._elapsed = elapsed
        self._tip = Fresh(self._look, fresh_for, elapsed)
        self._ends: dict[int, Fresh[Place]] = {}
        self._blocks = KeptBlocks(reader, self._keep, max_kept=MAX_KEPT)

    async def aclose(self) -> None:
        await self._reader.aclose()

    async def tip(self) -> Place:
        """The newest block. Raises ChainError."""
        return await self._tip.get()

    async def pages(
        self, address: str, first: int, last: int, *, parent: str | None = None
    ) -> AsyncGenerator[Page, None]:
        """All blocks from `first` to `last`, in order, the first of them following `parent`. Raises ChainError.

        What was read is one chain, not parts of two: in the end the node must still have the last block.
        """
        address = canonical(address)
        if address not in self._addresses:
            self._addresses |= {address}
        while first <= last:
            try:
                stretch = await self._stretch(address, first, last, parent)
            except Reorganised:  # perhaps only since the last look at the tip
                self._tip.expire()
                self._ends.clear()
                stretch = await self._stretch(address, first, last, parent)
            end = stretch[-1].place
            found = [each for block in stretch for each in block.content.transactions.get(address, ())]
            yield Page(first, end.number, end.hash, found)
            first, parent = end.number + 1, end.hash

    async def _look(self) -> Place:
        self._addresses = await self._load()  # those that were added meanwhile, before the next blocks are read
        return await self._reader.tip()

    def forget(self) -> None:
        """What was read turned out to be wrong."""
        self._blocks.clear()

    async def find(self, hashes: Sequence[str]) -> list[Whereabouts | None]:
        """Where the node has these transactions. Raises ChainError."""
        return await self._reader.find(hashes)

    async def _stretch(self, address: str, first: int, last: int, parent: str | None) -> list[Kept[Content]]:
        return await self._blocks.stretch(
            first,
            last,
            parent=parent,
            end=lambda: self._hash_of(last),
            wanted=lambda content: address in content.addresses,
        )

    async def _hash_of(self, number: int) -> str:
        """As the node has it now, or a moment ago: jobs that began together end at the same block."""
        tip = await self._tip.get()
        if tip.number == number:
            return tip.hash
        if number not in self._ends:
            self._ends[number] = Fresh(lambda: self._reader.header(number), self._fresh_for, self._elapsed)
            while len(self._ends) > MAX_ENDS:
                del self._ends[next(iter(self._ends))]
        return (await self._ends[number].get()).hash

    def _keep(self, block: Block) -> Content:
        ours = self._addresses
        found: dict[str, list[Transaction]] = {}
        for each in block.transactions:
            facts = Transaction(
                each.hash, block.place.number, each.sender, each.to, each.value, each.fee, each.succeeded
            )
            moved = [
                Transaction(
                    each.hash,
                    block.place.number,
                    sent.sender,
                    sent.receiver,
                    sent.amount,
                    0,
                    True,
                    token=sent.token,
                    transfer=f"{sent.token}:{sent.receiver}:{sent.index}",
                )
                for sent in each.transfers
            ]
            for one in (facts, *moved):
                for address in ours & {one.from_address, one.to_address}:
                    found.setdefault(address, []).append(one)
        return Content(ours, found)
