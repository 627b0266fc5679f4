"""What is known about chains, and which part of one may have changed. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Literal

from apps.chain.keccak import has_checksum, is_checksum_right

Mode = Literal["full", "partial"]

HEXADECIMAL = "^0x[0-9a-fA-F]{40}$"
BASE58 = "^[1-9A-HJ-NP-Za-km-z]{25,64}$"
UTXO = "^[a-zA-Z0-9:]{14,100}$"  # base58, bech32, and those with a prefix
ANY = "^[!-~]{1,128}$"
QUIET = timedelta(days=1)  # no public chain goes without a block for that long


@dataclass(frozen=True)
class Chain:
    """`reorg_depth`: how many of the newest blocks may still be replaced. `chain_id`: what an EVM node says it is."""

    reorg_depth: int = 32
    addresses: str = ANY
    chain_id: int | None = None


UNKNOWN = Chain()
OTHER_EVM = "eip155-([1-9][0-9]{0,17})"  # an EVM chain that has no name here, by its chain id
CHAINS = {
    "ethereum": Chain(32, HEXADECIMAL, 1),
    "optimism": Chain(32, HEXADECIMAL, 10),
    "bsc": Chain(32, HEXADECIMAL, 56),
    "polygon": Chain(128, HEXADECIMAL, 137),
    "base": Chain(32, HEXADECIMAL, 8453),
    "arbitrum": Chain(32, HEXADECIMAL, 42161),
    "avalanche": Chain(32, HEXADECIMAL, 43114),
    "bitcoin": Chain(6, UTXO),
    "bitcoincash": Chain(6, UTXO),
    "dogecoin": Chain(6, UTXO),
    "litecoin": Chain(6, UTXO),
    "solana": Chain(1, BASE58),
    "xrpl": Chain(1, BASE58),
}


def known(chain: str) -> Chain:
    """Unknown chains have the usual depth."""
    if other := re.fullmatch(OTHER_EVM, chain):
        return Chain(32, HEXADECIMAL, int(other[1]))
    return CHAINS.get(chain, UNKNOWN)


def unknown(chain: str) -> str | None:
    """What is wrong with the name of a chain; None for one that there is."""
    if chain in CHAINS or known(chain).chain_id is not None:
        return None
    meant = get_close_matches(chain, CHAINS, 1)
    hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(CHAINS)}, and eip155-<chain id>"
    return f"{chain!r} is not a chain that is known here; {hint}"


def canonical(address: str) -> str:
    """The one spelling of an address. Hexadecimal ones carry their checksum in capitals, which says nothing about which it is."""
    return address.lower() if address[:2] in ("0x", "0X") else address


def well_formed(chain: str, address: str) -> bool:
    return re.fullmatch(known(chain).addresses, address) is not None


def mistyped(address: str) -> bool:
    """Whether the upper and lower case of a hexadecimal address are a checksum (EIP-55) that does not fit its digits."""
    return re.fullmatch(HEXADECIMAL, address) is not None and has_checksum(address) and not is_checksum_right(address)


class NodeBehind(Exception):
    """The node does not even have the blocks that were reconciled long ago, or those of today. What it does not say means nothing."""


def check_caught_up(chain: str, newest: datetime, now: datetime) -> None:
    """The newest block decides where the history of an address begins, so it has to be recent. Raises NodeBehind.

    Chains that have no name here may be quiet for as long as they like.
    """
    if chain in CHAINS and now - newest > QUIET:
        raise NodeBehind(f"the node's newest block is of {newest:%Y-%m-%d}: it is still catching up")


@dataclass(frozen=True)
class Window:
    effective_mode: Mode
    from_block: int
    to_block: int


def window(mode: Mode, checkpoint: int | None, reorg_depth: int, height: int, first_block: int | None = None) -> Window:
    """The blocks to compare. Raises NodeBehind.

    A partial job without a checkpoint reads all from `first_block` on; without that, from a little before the height: the
    history of an address is read only by a full job, on request.
    """
    if mode == "full" or checkpoint is None:
        if height < max((checkpoint or 0) - reorg_depth, first_block or 0):
            raise NodeBehind(f"the node is at block {height}, and we have been at {checkpoint or first_block}")
        begin = max(0, height - reorg_depth) if mode == "partial" else 0
        return Window("full", begin if first_block is None else first_block, height)
    from_block = max(0, checkpoint - reorg_depth)
    if height < from_block:
        raise NodeBehind(f"the node is at block {height}, and we have been at {checkpoint}")
    return Window("partial", from_block, height)
