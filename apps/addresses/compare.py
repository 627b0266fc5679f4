"""What a difference between the chain and the local copy means. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Transaction:
    """As the chain has it. Amounts are in the chain's smallest unit, or in that of the token.

    A transfer of a token inside a transaction has its `token`, and `transfer` tells it apart from others of that transaction; its
    fee is that of the transaction, which its sender has as a row of its own.
    """

    hash: str
    block_number: int
    from_address: str
    to_address: str | None
    value: int
    fee: int
    succeeded: bool
    token: str | None = None
    transfer: str = ""

    @property
    def key(self) -> Key:
        return self.hash, self.transfer

    def facts(self) -> dict[str, Any]:
        """For the audit log: amounts as text, because JSON readers round such numbers."""
        facts = {**asdict(self), "value": str(self.value), "fee": str(self.fee)}
        return facts if self.transfer else {name: facts[name] for name in facts if name not in ("token", "transfer")}


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


def compare(chain: Sequence[Transaction], local: Mapping[Key, Local]) -> Differences:
    """`local` has every local row with one of these keys, in whatever block it is thought to be."""
    missing = []
    gone_before = []
    differing = []
    for transaction in chain:
        here = local.get(transaction.key)
        if here is None:
            missing.append(transaction)
        elif here.deleted:
            gone_before.append((here.transaction, transaction))
        elif here.transaction != transaction:
            differing.append((here.transaction, transaction))
    return Differences(missing, gone_before, differing)
