"""Payments on an EVM chain: native coin that transactions send to the address, or the Transfer logs of one token.

What is looked at is what was *received*, never a balance: moving the money on is not undoing its payment. Coins that a contract
passes on inside a transaction leave neither trace, and are not seen.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta

from apps.chain.rpc import ChainError, Rpc

from .evm_blocks import Block, Blocks, View
from .observe import Observation, ObserverError, Pace, Place, Subject, Transfer

DEPTH = (
    64  # blocks at the end of the chain are read anew each time; a reorganisation that goes deeper means beginning anew
)
MOST_BLOCKS = 200  # in one observation; after a long time away the rest follows in the next ones
CLOCKS = timedelta(minutes=1)  # so far a block's time may lie before the moment in which it was made


class EvmObserver:
    def __init__(self, url: str, chain_number: int, pace: Pace) -> None:
        self._rpc = Rpc(url, timeout=pace.timeout)
        self._blocks = Blocks(self._rpc, chain_number, pace.fresh_for.total_seconds(), pace.elapsed)
        self._timeout = pace.timeout

    async def aclose(self) -> None:
        await self._rpc.aclose()

    async def observe(self, subject: Subject) -> Observation:
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                return await self._observe(subject)
        except TimeoutError:
            raise ObserverError(f"the chain was not seen within {self._timeout.total_seconds():g} s") from None
        except ChainError as error:
            raise ObserverError(str(error)) from None

    async def _observe(self, subject: Subject) -> Observation:
        view = await self._blocks.view()
        _check_not_behind(view.tip, subject)
        first = subject.first_block
        if first is None:
            # Some blocks earlier: those may yet be replaced by others, with the payment in them.
            first = max(0, await self._blocks.first_since(subject.since - CLOCKS, view.tip) - DEPTH)
        start, blocks = first, list[Block]()
        if subject.scanned is not None and subject.scanned[0] >= first:
            start = subject.scanned[0]
        last = min(view.tip.number, start + MOST_BLOCKS)
        if start <= last:
            blocks = await self._blocks.run(start, last, view.tip)
        if start > first and subject.scanned is not None and blocks[0].place.hash != subject.scanned[1]:
            # The chain has been rewritten further back than we read each time.
            start, last = first, min(view.tip.number, first + MOST_BLOCKS)
            blocks = await self._blocks.run(start, last, view.tip)
        complete = last == view.tip.number or start > last
        found = await self._found(subject, blocks)
        # Below the block that we go on from everything stands, by its hash; beyond the last one we have not looked yet.
        kept = [
            known
            for known in subject.known
            if known.place is not None and (known.place.number < start or (not complete and known.place.number > last))
        ]
        mined = {each.key: each for each in [*kept, *found]}
        waiting = await self._waiting(subject, view, {tx_hash for tx_hash, _ in mined}, last)
        return Observation(
            tip=view.tip,
            transfers=[*mined.values(), *waiting],
            complete=complete,
            first_block=first,
            scanned=_scanned(blocks, view.tip) or (subject.scanned if start > first else None),
        )

    async def _found(self, subject: Subject, blocks: Sequence[Block]) -> list[Transfer]:
        found: list[Transfer] = []
        for block in blocks:
            if block.place.at < subject.since - CLOCKS:
                continue
            sent = block.received.get(_account(subject), ())
            if sent and subject.token is None:
                sent = await self._blocks.succeeded(block, sent)
            found += [Transfer(each.tx_hash, each.index, each.amount, block.place) for each in sent]
        return found

    async def _waiting(self, subject: Subject, view: View, mined: set[str], last: int) -> list[Transfer]:
        """What waits to be mined, and was known to wait and is not gone. Tokens show only when they are mined."""
        waiting: dict[tuple[str, int], Transfer] = {}
        if view.pending is not None:
            for sent in view.pending.get(_account(subject), ()):
                waiting[sent.tx_hash, sent.index] = Transfer(sent.tx_hash, sent.index, sent.amount, None)
        # A node shows the next block, not all that waits: so about the others it is asked by name.
        others = [each for each in subject.known if each.place is None and each.key not in waiting]
        still = await self._blocks.waiting([each.tx_hash for each in others if each.tx_hash not in mined], last)
        waiting.update({each.key: each for each in others if each.tx_hash in still})
        return [each for each in waiting.values() if each.tx_hash not in mined]

    async def address(self, text: str) -> str:
        """In lower case. Mixed case carries a check sum (EIP-55), which must be right; the node does the hashing."""
        if not re.fullmatch("0x[0-9a-fA-F]{40}", text):
            raise ValueError("an address is 0x and 40 hexadecimal digits")
        digits = text[2:]
        if digits not in (digits.lower(), digits.upper()) and digits != await self._with_check_sum(digits.lower()):
            raise ValueError("the address is mistyped: its upper and lower case do not fit its digits")
        return text.lower()

    async def _with_check_sum(self, digits: str) -> str:
        try:
            hashed = await self._rpc.call("web3_sha3", f"0x{digits.encode().hex()}")
        except ChainError as error:
            raise ObserverError(str(error)) from None
        if not isinstance(hashed, str) or not re.fullmatch("0x[0-9a-f]{64}", hashed):
            raise ObserverError("the node's answer to web3_sha3 cannot be read")
        return "".join(
            digit.upper() if int(half, 16) >= 8 else digit for digit, half in zip(digits, hashed[2:], strict=False)
        )


def _account(subject: Subject) -> tuple[str | None, str]:
    """However it was written into the table, it is looked up in lower case."""
    return None if subject.token is None else subject.token.lower(), subject.address.lower()


def _check_not_behind(tip: Place, subject: Subject) -> None:
    """What we have seen at a height that this node has not reached is not gone: the node is behind."""
    heights = [each.place.number for each in subject.known if each.place is not None]
    heights += [subject.scanned[0]] if subject.scanned is not None else []
    if max(heights, default=0) > tip.number:
        raise ObserverError(f"the node is at block {tip.number}, behind block {max(heights)} that was seen before")


def _scanned(blocks: Sequence[Block], tip: Place) -> tuple[int, str] | None:
    """The last block that is deep enough in the chain not to be read again."""
    deep = [block.place for block in blocks if block.place.number <= tip.number - DEPTH]
    return (deep[-1].number, deep[-1].hash) if deep else None
