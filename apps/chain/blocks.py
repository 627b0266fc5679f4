"""A block of an EVM chain, believed only when it proves itself. Pure.

A node may answer with a part of a block as readily as with all of it: its indexes lag, a proxy cuts an answer short, a replica is
new. An empty list means "nothing there" only if the header says so, too:

- no transactions only with the root of an empty tree, and as many receipts as transactions, of the same block;
- transactions are numbered without a gap, and the gas of their receipts adds up to the header's; each has the sender and receiver
  of its receipt, and no receiver only if it made a contract;
- each bit of the header's logs bloom comes from a receipt, each receipt's bloom is that of its logs, and the logs are numbered
  without a gap. A failed transaction has none.

Whatever does not fit is ChainUnavailable, with the reason. The roots themselves are not computed: a node that invents a chain
which agrees with itself is not found out here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from .keccak import keccak256
from .rpc import ChainUnavailable, number

EMPTY_ROOT = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"  # Transfer(address,address,uint256)
PLAIN_TRANSFER = 21_000  # gas
MAX_AMOUNT = 2**256 - 1
MAX_BLOCK = 2**63 - 1
BLOOM_BITS = 2048


class Inconsistent(ChainUnavailable):
    """The parts of the node's answer contradict one another."""


class NoSuchBlock(ChainUnavailable):
    """The node does not have it, or not yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """A block: its height, its hash, and when it says it was made."""

    number: int
    hash: str
    at: datetime


@dataclass(frozen=True, slots=True)
class TokenTransfer:
    """A Transfer log of a token. Transfers of nothing, and to oneself, are left out.

    `index` counts the transfers of one token to one receiver in a transaction: a position in the block would change when the
    transaction is mined again elsewhere.
    """

    token: str
    sender: str
    receiver: str
    amount: int
    index: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """`to` is None where a contract is made. Addresses are in lower case."""

    hash: str
    sender: str
    to: str | None
    value: int
    fee: int
    succeeded: bool
    transfers: Sequence[TokenTransfer]


@dataclass(frozen=True, slots=True)
class Block:
    place: Place
    parent: str
    transactions: Sequence[Transaction]


def place(told: Any, expected: int | None = None) -> Place:
    """The block that a header is of."""
    if told is None:
        raise NoSuchBlock(f"the node has no block {'at all' if expected is None else expected}")
    found = at_most(number(_field(told, "number")), MAX_BLOCK)
    if expected is not None and found != expected:
        raise Inconsistent(f"the node answered with block {found} where {expected} was asked for")
    try:
        made_at = datetime.fromtimestamp(number(_field(told, "timestamp")), UTC)
    except (OverflowError, ValueError, OSError):
        raise ChainUnavailable(f"the node gives block {found} an impossible time") from None
    return Place(found, hash_(_field(told, "hash")), made_at)


def block(told: Any, receipts: Any, expected: int) -> Block:
    """A block from what a node says about it. Raises ChainUnavailable when that is not all of it."""
    where = place(told, expected)
    transactions = told.get("transactions")
    if not isinstance(transactions, list):
        raise Inconsistent(f"the node returned block {expected} without its transactions")
    if bool(transactions) != (_field(told, "transactionsRoot") != EMPTY_ROOT):
        said = f"{len(transactions)} transactions" if transactions else "no transactions"
        raise Inconsistent(
            f"the node shows {said} in block {expected}, and the block's transactionsRoot says otherwise"
        )
    by_hash = _receipts(where, transactions, receipts)
    _check_header(told, where, list(by_hash.values()))
    return Block(
        where, hash_(_field(told, "parentHash")), tuple(_transaction(where, each, by_hash) for each in transactions)
    )


def _receipts(where: Place, transactions: Sequence[Any], receipts: Any) -> dict[Any, dict[str, Any]]:
    """By transaction, in the order of the transactions."""
    if receipts is None or not isinstance(receipts, list):
        raise Inconsistent(f"the node has no receipts of block {where.number}")
    if len(receipts) != len(transactions):
        raise Inconsistent(
            f"the node has {len(receipts)} receipts of the {len(transactions)} transactions of block {where.number}"
        )
    by_hash = {_field(each, "transactionHash"): each for each in receipts}
    hashes = [hash_(_field(each, "hash")) for each in transactions]
    if set(hashes) != by_hash.keys() or len(by_hash) != len(receipts):
        raise Inconsistent(f"the receipts of block {where.number} are not those of its transactions")
    if any(_field(each, "blockHash") != where.hash for each in receipts):
        raise Inconsistent(f"the receipts of block {where.number} are of another block of that height")
    if any(each.get("blockHash", where.hash) != where.hash for each in transactions):
        raise Inconsistent(f"the transactions of block {where.number} are of another block of that height")
    if any(number(each.get("transactionIndex", hex(n))) != n for n, each in enumerate(transactions)):
        raise Inconsistent(f"the transactions of block {where.number} are not numbered from the first to the last")
    return {tx_hash: by_hash[tx_hash] for tx_hash in hashes}


def _check_header(told: Any, where: Place, receipts: Sequence[dict[str, Any]]) -> None:
    # Not the last receipt's cumulative gas: that reaches the header's although one in the middle is missing.
    if sum(number(_field(each, "gasUsed")) for each in receipts) < number(_field(told, "gasUsed")):
        raise Inconsistent(f"the transactions of block {where.number} used less gas than the block: some are missing")
    blooms, logged = 0, 0
    for receipt in receipts:
        logs, bloom = receipt.get("logs"), number(_field(receipt, "logsBloom"))
        if not isinstance(logs, list) or bloom_of(logs) != bloom:
            raise Inconsistent(f"a receipt of block {where.number} has a logs bloom that its logs do not fit")
        for log in logs:
            if _field(log, "blockHash") != where.hash or log.get("removed"):
                raise Inconsistent(f"the node returned logs of another block than {where.number}")
            if _field(log, "transactionHash") != receipt["transactionHash"]:
                raise Inconsistent(f"a receipt of block {where.number} has logs of another transaction")
            if number(_field(log, "logIndex")) != logged:
                raise Inconsistent(f"log {logged} of block {where.number} is missing")
            logged += 1
        blooms |= bloom
    if number(_field(told, "logsBloom")) & ~blooms:
        raise Inconsistent(f"block {where.number} has logs, and the node does not show all of them")


def bloom_of(logs: Sequence[Any]) -> int:
    """Three bits for the address of each log, and for each of its topics."""
    bloom = 0
    for log in logs:
        topics = log.get("topics") if isinstance(log, dict) else None
        if not isinstance(topics, list):
            raise ChainUnavailable("the node's answer cannot be read: topics is missing")
        for hexadecimal in [address(log.get("address")), *map(hash_, topics)]:
            bloom |= _bits(hexadecimal)
    return bloom


@lru_cache(maxsize=2**14)
def _bits(hexadecimal: str) -> int:
    digest = keccak256(bytes.fromhex(hexadecimal[2:]))
    bits = 0
    for first in (0, 2, 4):
        bits |= 1 << int.from_bytes(digest[first : first + 2], "big") % BLOOM_BITS
    return bits


def _transaction(where: Place, told: Any, receipts: dict[Any, dict[str, Any]]) -> Transaction:
    receipt, to = receipts[told["hash"]], told.get("to")
    price = receipt.get("effectiveGasPrice", told.get("gasPrice"))  # the older nodes have only the latter
    succeeded = _succeeded(told, receipt)
    if receipt["logs"] and not succeeded:
        raise Inconsistent(f"a transaction of block {where.number} failed, and has logs")
    if any(_lower(receipt[name]) != _lower(told.get(name)) for name in ("from", "to") if name in receipt):
        raise Inconsistent(f"a transaction of block {where.number} has another sender or receiver in its receipt")
    if to is None and succeeded and receipt.get("contractAddress") is None:
        raise Inconsistent(f"a transaction of block {where.number} has no receiver, and made no contract")
    return Transaction(
        hash=told["hash"],
        sender=address(told.get("from")),
        to=None if to is None else address(to),
        value=at_most(number(told.get("value")), MAX_AMOUNT),
        fee=at_most(number(receipt.get("gasUsed")) * number(price) + _also_charged(receipt), MAX_AMOUNT),
        succeeded=succeeded,
        transfers=_transfers(receipt["logs"]),
    )


def _also_charged(receipt: dict[str, Any]) -> int:
    """Besides gas: for blobs (EIP-4844), and by chains on top of another one for their place in that one."""
    blobs = number(receipt.get("blobGasUsed") or "0x0") * number(receipt.get("blobGasPrice") or "0x0")
    return blobs + number(receipt.get("l1Fee") or "0x0")


def _succeeded(told: Any, receipt: dict[str, Any]) -> bool:
    if receipt.get("status") is not None:
        return at_most(number(receipt["status"]), 1) == 1
    # Before Byzantium (2017) receipts had a state root instead. What failed had used up all of its gas.
    hash_(receipt.get("root"))
    used = number(receipt.get("gasUsed"))
    return used < number(told.get("gas")) or used == PLAIN_TRANSFER


def _transfers(logs: Sequence[Any]) -> Sequence[TokenTransfer]:
    """Any contract may log what only looks like a transfer: other shapes are skipped without an error."""
    counted: Counter[tuple[str, str]] = Counter()
    found = []
    for log in logs:
        topics, data = log["topics"], _bytes(log.get("data"))
        if len(topics) != 3 or topics[0] != TRANSFER or len(data) != 66:
            continue
        token, amount = address(log["address"]), number(data)
        sender, receiver = (f"0x{topic[-40:]}" for topic in topics[1:])
        if amount and sender != receiver:
            found.append(TokenTransfer(token, sender, receiver, amount, counted[token, receiver]))
            counted[token, receiver] += 1
    return tuple(found)


def hash_(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("0x[0-9a-f]{64}", value):
        raise ChainUnavailable(f"the node said {str(value)[:40]!r} where a hash belongs")
    return value


def address(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("0x[0-9a-fA-F]{40}", value):
        raise ChainUnavailable(f"the node said {str(value)[:60]!r} where an address belongs")
    return value.lower()


def _bytes(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("0x(?:[0-9a-fA-F]{2})*", value):
        raise ChainUnavailable(f"the node said {str(value)[:40]!r} where bytes belong")
    return value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def at_most(value: int, most: int) -> int:
    if value > most:
        raise ChainUnavailable(f"the node said {hex(value)[:40]} where a smaller number belongs")
    return value


def _field(told: Any, name: str) -> str:
    value = told.get(name) if isinstance(told, dict) else None
    if not isinstance(value, str):
        raise ChainUnavailable(f"the node's answer cannot be read: {name} is missing")
    return value
