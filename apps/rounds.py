"""When a demo brings its faults: each of them once in a demo, and in every round of a soak, which is the same demo for longer."""

from __future__ import annotations

import random
from dataclasses import dataclass

# Seconds: time for the faults of a round to come, and for what they broke to be put right.
MIN_ROUND, MAX_ROUND = 60.0, 90.0
SEED = 7  # the same soak each time


@dataclass(frozen=True)
class Round:
    """In seconds from the beginning of the demo."""

    begin: float
    length: float

    def at(self, fraction: float) -> float:
        """The moment at which so much of this round has passed."""
        return self.begin + fraction * self.length

    @property
    def end(self) -> float:
        return self.at(1)


def rounds(seconds: float) -> list[Round]:
    """One after the other, and together that long; a single one when there is no time for two."""
    chance, made, begin = random.Random(SEED), list[Round](), 0.0  # noqa: S311 - nothing secret about it
    while seconds - begin >= MIN_ROUND + MAX_ROUND:
        made.append(Round(begin, chance.uniform(MIN_ROUND, MAX_ROUND)))
        begin = made[-1].end
    return [*made, Round(begin, seconds - begin)]
