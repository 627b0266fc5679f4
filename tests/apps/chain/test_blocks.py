"""A block is believed only when its parts agree: each way in which they may contradict one another is told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apps.chain.blocks import EMPTY_ROOT, TRANSFER, Inconsistent, block, bloom_of
from apps.chain.rpc import ChainUnavailable

HASH, PARENT, OTHER, ROOT = ("0x" + digit * 64 for digit in "abcd")
ADA, BOB = ("0x" + digit * 40 for digit in "12")
NO_BLOOM = "0x" + "0" * 512


def bloom(*transactions: int) -> str:
    """Of the logs of these."""
    return f"0x{bloom_of([log for n in transactions for log in logs(n)]):0512x}"


def transaction(n: int) -> dict[str, Any]:
    return {"hash": f"0x{n:064x}", "blockHash": HASH, "from": ADA, "to": BOB, "value": "0x1", "gas": "0xffff"}


def logs(n: int) -> list[dict[str, Any]]:
    """Of transaction `n`: transfers of tokens of its own."""
    first = sum(LOGS[: n - 1])
    return [
        {
            "address": f"0x{n:040x}",
            "blockHash": HASH,
            "transactionHash": f"0x{n:064x}",
            "logIndex": hex(first + nth),
            "topics": [TRANSFER, f"0x{0xADA:064x}", f"0x{0xB0B + nth:064x}"],
            "data": f"0x{100 + nth:064x}",
        }
        for nth in range(LOGS[n - 1])
    ]


def receipt(n: int) -> dict[str, Any]:
    return {
        "transactionHash": f"0x{n:064x}",
        "blockHash": HASH,
        "from": ADA,
        "to": BOB,
        "contractAddress": None,
        "status": "0x1",
        "gasUsed": hex(21_000),
        "cumulativeGasUsed": hex(21_000 * n),
        "effectiveGasPrice": "0x1",
        "logsBloom": bloom(n),
        "logs": logs(n),
    }


LOGS = (2, 0, 2)  # of each transaction
TRUE: dict[str, Any] = {
    "number": "0x7",
    "hash": HASH,
    "parentHash": PARENT,
    "timestamp": "0x60000000",
    "transactionsRoot": ROOT,
    "gasUsed": hex(63_000),
    "logsBloom": bloom(1, 3),
    "transactions": [transaction(n) for n in (1, 2, 3)],
    "receipts": [receipt(n) for n in (1, 2, 3)],
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
    "the last log of all missing": lambda told: told["receipts"][2]["logs"].pop(),
    "a log twice": lambda told: told["receipts"][2]["logs"].append(told["receipts"][2]["logs"][-1]),
    "a log with another receiver": lambda told: told["receipts"][2]["logs"][1]["topics"].__setitem__(2, OTHER),
    "a log of another token": lambda told: told["receipts"][2]["logs"][1].update(address=BOB),
    "a log without its receiver": lambda told: told["receipts"][2]["logs"][1]["topics"].pop(),
    "a log of another transaction": lambda told: told["receipts"][2]["logs"][1].update(transactionHash=OTHER),
    "logs of what failed": lambda told: told["receipts"][2].update(status="0x0"),
    "a log of another block": lambda told: told["receipts"][0]["logs"][1].update(blockHash=OTHER),
    "a receiver that is left out": lambda told: told["transactions"][1].pop("to"),
    "a receiver that is left out twice": lambda told: [
        each.update(to=None) for each in (told["transactions"][1], told["receipts"][1])
    ],
    "a receiver that the receipt does not have": lambda told: told["transactions"][1].update(to=ADA),
    "a sender that the receipt does not have": lambda told: told["transactions"][1].update({"from": BOB}),
    "a log that was removed": lambda told: told["receipts"][0]["logs"][1].update(removed=True),
}


# What has not even the form of an answer.
UNREADABLE: dict[str, Callable[[Any], Any]] = {
    "a status beside success and failure": lambda told: told["receipts"][1].update(status="0x2"),
    "topics in capitals": lambda told: told["receipts"][2]["logs"][1].update(topics=[f"0x{TRANSFER[2:].upper()}"]),
    "no topics": lambda told: told["receipts"][2]["logs"][1].pop("topics"),
    "topics that are none": lambda told: told["receipts"][2]["logs"][1].update(topics=[None]),
    "a log that is none": lambda told: told["receipts"][2]["logs"].__setitem__(1, "0x"),
    "half a byte of data": lambda told: told["receipts"][2]["logs"][1].update(data="0x1"),
    "no data": lambda told: told["receipts"][2]["logs"][1].update(data=""),
    "data that is none": lambda told: told["receipts"][2]["logs"][1].update(data="0x-1"),
    "more gas than a number": lambda told: told["receipts"][1].update(gasUsed=f"0x{'f' * 600}"),
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


@pytest.mark.parametrize("slip", UNREADABLE)
def test_what_has_no_meaning_is_told(slip: str) -> None:
    told = copy.deepcopy(TRUE)
    UNREADABLE[slip](told)
    with pytest.raises(ChainUnavailable):
        read(told)


def test_a_contract_that_is_made_has_an_address_and_no_receiver() -> None:
    told = copy.deepcopy(TRUE)
    told["transactions"][1]["to"] = told["receipts"][1]["to"] = None
    told["receipts"][1]["contractAddress"] = OTHER[:42].upper().replace("X", "x")
    assert read(told).transactions[1].to is None


def test_logs_that_only_look_like_transfers_are_passed_over() -> None:
    """Anybody may log anything: of a token without a receiver, of nothing, to oneself, or with an amount that is none."""
    told = copy.deepcopy(TRUE)
    first, second = told["receipts"][2]["logs"]
    first.update(data="0x")
    second.update(data=f"0x{0:064x}")
    third, fourth = told["receipts"][0]["logs"]
    third["topics"] = third["topics"][:1]
    fourth["topics"][2] = fourth["topics"][1]
    for each in told["receipts"]:
        each["logsBloom"] = f"0x{bloom_of(each['logs']):0512x}"
    told["logsBloom"] = told["receipts"][2]["logsBloom"]
    assert [each.transfers for each in read(told).transactions] == [(), (), ()]


@pytest.mark.parametrize(
    ("also", "fee"),
    [
        ({}, 21_000),
        ({"l1Fee": "0x64"}, 21_100),
        ({"l1Fee": None, "blobGasUsed": "0x20000", "blobGasPrice": "0x3"}, 21_000 + 3 * 0x20000),
    ],
    ids=["gas", "a layer below", "blobs"],
)
def test_a_fee_is_all_that_was_charged(also: dict[str, Any], fee: int) -> None:
    told = copy.deepcopy(TRUE)
    told["receipts"][1].update(also)
    assert read(told).transactions[1].fee == fee
