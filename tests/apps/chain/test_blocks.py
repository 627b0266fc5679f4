"""A block is believed only when its parts agree: each way in which they may contradict one another is told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apps.chain.blocks import EMPTY_ROOT, Inconsistent, block

HASH, PARENT, OTHER, ROOT = ("0x" + digit * 64 for digit in "abcd")
ADA, BOB = ("0x" + digit * 40 for digit in "12")
NO_BLOOM = "0x" + "0" * 512


def bloom(bit: int) -> str:
    return f"0x{1 << bit:0512x}"


def transaction(n: int) -> dict[str, Any]:
    return {"hash": f"0x{n:064x}", "blockHash": HASH, "from": ADA, "to": BOB, "value": "0x1", "gas": "0xffff"}


def receipt(n: int, logs: int) -> dict[str, Any]:
    first = sum(LOGS[: n - 1])
    return {
        "transactionHash": f"0x{n:064x}",
        "blockHash": HASH,
        "status": "0x1",
        "gasUsed": hex(21_000),
        "cumulativeGasUsed": hex(21_000 * n),
        "effectiveGasPrice": "0x1",
        "logsBloom": bloom(n) if logs else NO_BLOOM,
        "logs": [
            {"address": BOB, "blockHash": HASH, "logIndex": hex(first + nth), "topics": [], "data": "0x"}
            for nth in range(logs)
        ],
    }


LOGS = (2, 0, 1)  # of each transaction
TRUE: dict[str, Any] = {
    "number": "0x7",
    "hash": HASH,
    "parentHash": PARENT,
    "timestamp": "0x60000000",
    "transactionsRoot": ROOT,
    "gasUsed": hex(63_000),
    "logsBloom": hex(int(bloom(1), 16) | int(bloom(3), 16)),
    "transactions": [transaction(n) for n in (1, 2, 3)],
    "receipts": [receipt(n, logs) for n, logs in zip((1, 2, 3), LOGS, strict=True)],
}

LIES: dict[str, Callable[[Any], Any]] = {
    "the root of no transactions": lambda told: told.update(transactionsRoot=EMPTY_ROOT),
    "no transactions under a root": lambda told: told.update(
        transactions=[], receipts=[], gasUsed="0x0", logsBloom=NO_BLOOM
    ),
    "another number": lambda told: told.update(number="0x8"),
    "a receipt too few": lambda told: told["receipts"].pop(),
    "a transaction twice": lambda told: told["transactions"].append(told["transactions"][0]),
    "a receipt twice": lambda told: told["receipts"].__setitem__(1, told["receipts"][0]),
    "a receipt of another transaction": lambda told: told["receipts"][1].update(transactionHash=OTHER),
    "a receipt of another block": lambda told: told["receipts"][1].update(blockHash=OTHER),
    "a transaction of another block": lambda told: told["transactions"][1].update(blockHash=OTHER),
    "the last transaction and its receipt missing": lambda told: (
        told["transactions"].pop(),
        told["receipts"].pop(),
        told.update(logsBloom=bloom(1)),
    ),
    "a transaction in the middle and its receipt missing": lambda told: (
        told["transactions"].pop(1),
        told["receipts"].pop(1),
    ),
    "a transaction that used no gas missing, and its receipt": lambda told: (
        told.update(gasUsed=hex(42_000)),
        told["transactions"].pop(1),
        told["receipts"].pop(1),
        [each.update(transactionIndex=hex(n)) for n, each in zip((0, 2), told["transactions"], strict=True)],
    ),
    "logs missing from a receipt": lambda told: told["receipts"][2].update(logs=[]),
    "logs and bloom missing from a receipt": lambda told: told["receipts"][2].update(logs=[], logsBloom=NO_BLOOM),
    "a log missing from a receipt": lambda told: told["receipts"][0]["logs"].pop(0),
    "a log of another block": lambda told: told["receipts"][0]["logs"][1].update(blockHash=OTHER),
    "a log that was removed": lambda told: told["receipts"][0]["logs"][1].update(removed=True),
}


def read(told: dict[str, Any]) -> Any:
    return block(told, told.pop("receipts"), 7)


def test_a_block_whose_parts_agree_is_believed() -> None:
    assert len(read(copy.deepcopy(TRUE)).transactions) == 3


@pytest.mark.parametrize("lie", LIES)
def test_a_contradiction_is_told(lie: str) -> None:
    told = copy.deepcopy(TRUE)
    LIES[lie](told)
    with pytest.raises(Inconsistent):
        read(told)
