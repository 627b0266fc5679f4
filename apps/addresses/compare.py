"""What a difference between the chain and the local copy means. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Transaction:
    """As the chain has it. Amounts are in the chain's smallest unit."""

    hash: str
    block_number: int
    from_address: str
    to_address: str | None
    value: int
    fee: int
    succeeded: bool

    def facts(self) -> dict[str, Any]:
        """For the audit log: amounts as text, because JSON readers round such numbers."""
        return {**asdict(self), "value": str(self.value), "fee": str(self.fee)}


@dataclass(frozen=True)
class Local:
    """The local copy of it."""

    transaction: Transaction
    deleted: bool


@dataclass(frozen=True)
class Differences:
    """`missing`: to be added. `gone_before`: had been deleted here, and are back. `differing`: before, and as it is."""

    missing: Sequence[Transaction]
    gone_before: Sequence[tuple[Transaction, Transaction]]
    differing: Sequence[tuple[Transaction, Transaction]]


def compare(chain: Sequence[Transaction], local: Mapping[str, Local]) -> Differences:
    """`local` has every local row with one of these hashes, in whatever block it is thought to be."""
    missing = []
    gone_before = []
    differing = []
    for transaction in chain:
        here = local.get(transaction.hash)
        if here is None:
            missing.append(transaction)
        elif here.deleted:
            gone_before.append((here.transaction, transaction))
        elif here.transaction != transaction:
            differing.append((here.transaction, transaction))
    return Differences(missing, gone_before, differing)
