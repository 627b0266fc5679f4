"""Kinds of chains, by the first part of a chain's name (CAIP-2: `eip155:1`), and what looks at each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .evm import EvmObserver
from .observe import Observer, Pace


@dataclass(frozen=True)
class Kind:
    """`confirmations` is the variable that says how many are enough. Another kind of chain needs an Observer, and a line here."""

    confirmations: str
    reference: str  # what follows the colon, as a pattern
    observer: Callable[[str, str, Pace], Observer]


def _evm(url: str, reference: str, pace: Pace) -> Observer:
    return EvmObserver(url, int(reference), pace)


KINDS: Mapping[str, Kind] = {
    "eip155": Kind("EVM_MIN_CONFIRMATIONS", r"[1-9][0-9]{0,18}", _evm),
}


def kind(chain_id: str) -> Kind | None:
    return KINDS.get(chain_id.partition(":")[0])


def make_observers(nodes: Mapping[str, str], pace: Pace) -> dict[str, Observer]:
    """One for each chain that has a node, by its name."""
    observers = {}
    for chain_id, url in nodes.items():
        found = kind(chain_id)
        assert found is not None, "the configuration has seen to it"
        observers[chain_id] = found.observer(url, chain_id.partition(":")[2], pace)
    return observers


def observable(chain_id: str) -> bool:
    """Whether a node for it can be configured."""
    found = kind(chain_id)
    reference = chain_id.partition(":")[2]
    return found is not None and re.fullmatch(found.reference, reference) is not None
