"""What ought to be, reckoned from the chain alone: neither the observer nor the judge is asked. For the demo's proof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from apps.chain.anvil import Anvil

Paid = Mapping[tuple[str | None, str], list[tuple[datetime, int]]]  # by token and address: when, and how much


@dataclass(frozen=True)
class Balance:
    """`wrong` names each request that does not stand as the chain has it."""

    settled: int
    received: int
    wrong: Collection[str]

    @property
    def holds(self) -> bool:
        return not self.wrong and self.settled == self.received


def read_chain(anvil: Anvil) -> Paid:
    """Every payment in every block, from the receipts."""
    paid: dict[tuple[str | None, str], list[tuple[datetime, int]]] = defaultdict(list)
    for number in range(anvil.height() + 1):
        block = anvil.call("eth_getBlockByNumber", hex(number), True)
        made_at = datetime.fromtimestamp(int(block["timestamp"], 16), UTC)
        for transaction in block["transactions"]:
            receipt = anvil.call("eth_getTransactionReceipt", transaction["hash"])
            if receipt["status"] != "0x1":
                continue
            if transaction["to"] and int(transaction["value"], 16):
                paid[None, transaction["to"].lower()].append((made_at, int(transaction["value"], 16)))
            for log in receipt["logs"]:
                to = f"0x{log['topics'][2][-40:]}"
                paid[log["address"].lower(), to].append((made_at, int(log["data"], 16)))
    return paid


def balance(requests: Collection[Mapping[str, Any]], settled: int, paid: Paid, now: datetime) -> Balance:
    """`settled` is the sum of all settlements that are in a block."""
    wrong, received = [], 0
    for request in requests:
        payments = paid.get((request["token"], request["address"]), [])
        received += sum(amount for _, amount in payments)
        in_time = sum(amount for at, amount in payments if at <= request["expires_at"])
        if request["status"] not in _right(request, in_time, now):
            wrong.append(f"{request['id']} is {request['status']}, with {in_time} of {request['expected_amount']} paid")
    return Balance(settled, received, wrong)


def _right(request: Mapping[str, Any], in_time: int, now: datetime) -> set[str]:
    """The statuses that a request may have. Taken back or never there: the chain alone does not tell."""
    expected = request["expected_amount"]
    if in_time >= (1 if expected is None else expected):
        return {"confirmed"}
    return {"expired" if now > request["expires_at"] else "pending", "reorged"}
