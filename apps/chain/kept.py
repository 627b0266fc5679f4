"""Blocks that are read once for everybody in this process, and never trusted further than their hashes reach.

Blocks are kept by number. Each names its parent's hash, so a run of blocks that ends in the tip is the chain: where the links do
not fit, blocks are stale and read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from .blocks import Block, Place
from .reader import PAGE, Reader
from .rpc import ChainError, ChainSlow, ChainUnavailable

T = TypeVar("T")

FAILED_FOR = 1.0  # seconds


class Reorganised(ChainUnavailable):
    """Blocks were replaced while they were read: what was read is of two chains."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """What is kept of a block."""

    place: Place
    parent: str
    content: T


def any_content(_: object) -> bool:
    return True


class KeptBlocks(Generic[T]):
    """`keep` says what is kept of a block."""

    def __init__(self, reader: Reader, keep: Callable[[Block], T], *, max_kept: int) -> None:
        self._reader = reader
        self._keep = keep
        self._max_kept = max_kept
        self._blocks: dict[int, Kept[T]] = {}
        self._reading = asyncio.Lock()

    def get(self, n: int) -> Kept[T] | None:
        return self._blocks.get(n)

    def clear(self) -> None:
        self._blocks.clear()

    async def run(
        self,
        first: int,
        last: int,
        *,
        parent: str | None = None,
        end: str | None = None,
        wanted: Callable[[T], bool] = any_content,
    ) -> list[Kept[T]]:
        """The blocks from `first` to `last`, linked to one another; also to the hash `parent` below, and ending in the hash `end`.

        Kept ones that are not `wanted` are read again. Raises ChainError, and Reorganised when they do not link.
        """
        mine: dict[int, Kept[T]] = {}
        fresh: set[int] = set()
        while True:
            await self._fill(mine, fresh, first, last, wanted)
            broken = _broken(mine, first, last, parent, end)
            if broken is None:
                return [mine[n] for n in range(first, last + 1)]
            below, above = broken in mine and broken not in fresh, broken + 1 in mine and broken + 1 not in fresh
            if not below and not above:
                self._drop(mine, range(broken - PAGE, broken + PAGE))
                raise Reorganised(f"the chain was reorganised at block {min(broken + 1, last)} while it was being read")
            stale = range(broken - PAGE + 1, broken + 1) if below else range(broken + 1, broken + PAGE + 1)
            self._drop(mine, [n for n in stale if n not in fresh])

    async def stretch(
        self,
        first: int,
        last: int,
        *,
        parent: str | None = None,
        end: Callable[[], Awaitable[str]] | None = None,
        wanted: Callable[[T], bool] = any_content,
    ) -> list[Kept[T]]:
        """The blocks from `first` on that are kept, and a page that is read after them; at most up to `last`.

        `end` is asked for the hash of the last one when it is reached. So what was kept is linked to what the node has now.
        """
        reached = first - 1
        while reached < last and self._has(reached + 1, wanted):
            reached += 1
        if reached < last:
            page = await self._read(reached + 1, last, wanted)
            reached = page[-1].place.number if page else reached + 1
        expected = await end() if end is not None and reached == last else None
        return await self.run(first, reached, parent=parent, end=expected, wanted=wanted)

    async def _fill(
        self, mine: dict[int, Kept[T]], fresh: set[int], first: int, last: int, wanted: Callable[[T], bool]
    ) -> None:
        n = first
        while n <= last:
            if n in mine:
                n += 1
            elif self._has(n, wanted):
                mine[n] = self._blocks[n]
            else:
                stop = n
                while stop < last and stop + 1 not in mine and not self._has(stop + 1, wanted):
                    stop += 1
                for kept in await self._read(n, stop, wanted):
                    mine[kept.place.number] = kept
                    fresh.add(kept.place.number)

    def _has(self, n: int, wanted: Callable[[T], bool]) -> bool:
        return n in self._blocks and wanted(self._blocks[n].content)

    async def _read(self, first: int, last: int, wanted: Callable[[T], bool]) -> list[Kept[T]]:
        """A page of blocks; none when another process has read the first of them while this one waited."""
        async with self._reading:  # let go between pages: who reads far back does not keep the others waiting
            if self._has(first, wanted):
                return []
            blocks = await self._reader.read(first, last)
        read = [Kept(each.place, each.parent, self._keep(each)) for each in blocks]
        for kept in read:
            self._blocks.pop(kept.place.number, None)  # so that it is the newest to be forgotten
            self._blocks[kept.place.number] = kept
        while len(self._blocks) > self._max_kept:
            del self._blocks[next(iter(self._blocks))]
        return read

    def _drop(self, mine: dict[int, Kept[T]], numbers: range | list[int]) -> None:
        for n in numbers:
            mine.pop(n, None)
            self._blocks.pop(n, None)


def _broken(mine: dict[int, Kept[T]], first: int, last: int, parent: str | None, end: str | None) -> int | None:
    """The highest block that is not the parent of the one above it; `first` - 1 when that is the given parent."""
    expected = end
    for n in range(last, first - 1, -1):
        if expected is not None and mine[n].place.hash != expected:
            return n
        expected = mine[n].parent
    return first - 1 if parent is not None and expected is not None and parent != expected else None


class Fresh(Generic[T]):
    """One answer serves everybody who asks within `fresh_for` seconds; a failure to have it does for a second at most.

    A node that cannot be asked is not asked in vain by the next thousand rows.
    """

    def __init__(self, look: Callable[[], Awaitable[T]], fresh_for: float, elapsed: Callable[[], float]) -> None:
        self._look = look
        self._fresh_for = fresh_for
        self._elapsed = elapsed
        self._found: T | None = None
        self._failure: ChainError | None = None
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    def expire(self) -> None:
        """The next one who asks looks again."""
        self._looked = float("-inf")

    async def get(self) -> T:
        async with self._looking:
            fresh_for = self._fresh_for if self._failure is None else min(self._fresh_for, FAILED_FOR)
            if self._elapsed() - self._looked >= fresh_for:
                self._failure = ChainSlow("the node did not answer in time")  # unless we get further than this
                try:
                    self._found = await self._look()
                    self._failure = None
                except ChainError as error:
                    self._failure = error
                finally:
                    self._looked = self._elapsed()
        if self._failure is not None or self._found is None:
            raise ChainUnavailable(str(self._failure))
        return self._found
