"""How late things were, as counts between fixed bounds: small enough to keep, and enough for a histogram."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import timedelta

GRACE = timedelta(seconds=60)  # late by more than this counts as late; schedules use the same unless told otherwise
BOUNDS_S = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)  # and beyond


@dataclass(slots=True)
class Lateness:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    late: int = 0
    worst_s: float = 0.0
    total_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Early counts as on time."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.late += seconds > GRACE.total_seconds()
        self.worst_s = max(self.worst_s, seconds)
        self.total_s += seconds

    def add_alike(self, count: int, latest: float, earliest: float) -> None:
        """Add `count` rows between two bounds so near to one another that the rows count as evenly spread."""
        latest, earliest = max(0.0, latest), max(0.0, earliest)
        self.counts[bisect_left(BOUNDS_S, latest)] += count
        self.late += count if latest > GRACE.total_seconds() else 0
        self.worst_s = max(self.worst_s, latest)
        self.total_s += count * (latest + earliest) / 2

    def include(self, other: Lateness) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.late += other.late
        self.worst_s = max(self.worst_s, other.worst_s)
        self.total_s += other.total_s

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def average_s(self) -> float:
        return self.total_s / self.count if self.count else 0.0
