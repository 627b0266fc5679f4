"""What must hold for the ledger of a schedule that is due every second. Each check returns its violations as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from tests.support.invariants import Violations

SECOND = timedelta(seconds=1)
Entry = tuple[datetime, datetime, int, str]  # first tick, last tick, how many it stands for, what became of them


def ticks_fire_once(ledger: Sequence[Entry], runs: Mapping[datetime, int]) -> Violations:
    """I1 and I2: the ledger stands for every second once, without a gap, and what it says was fired has one run."""
    ledger = sorted(ledger)
    found = [
        f"I2: {first} to {last} ({outcome}) does not stand for {count} seconds"
        for first, last, count, outcome in ledger
        if last - first + SECOND != count * SECOND
    ]
    found += [
        f"I1 or I2: {later[0]} comes after {earlier[1]}"
        for earlier, later in pairwise(ledger)
        if later[0] != earlier[1] + SECOND
    ]
    fired = Counter(first for first, _, _, outcome in ledger if outcome == "fired")
    found += [
        f"I1: the tick of {tick} was fired {fired[tick]} times and has {runs.get(tick, 0)} runs"
        for tick in sorted(fired.keys() | runs.keys())
        if fired[tick] != runs.get(tick, 0) or fired[tick] > 1
    ]
    return found
