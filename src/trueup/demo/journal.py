"""What the receiver has written down: the other side of every proof, which knows nothing of the database."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Arrival:
    key: str
    at: float  # seconds since 1970, by the receiver's clock
    digest: str  # of the body
    message: str
    unwanted: bool = False  # it was answered that it must not come again


@dataclass(slots=True)
class Journal:
    path: Path
    arrivals: list[Arrival] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)  # of messages that were taken
    _read: int = 0

    def refresh(self) -> None:
        """Read on from where we were."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # only just being written
                    break
                self._read += len(line)
                self._add(Arrival(**orjson.loads(line)))

    def _add(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        if not arrival.unwanted:
            self.keys.add(arrival.key)

    @property
    def taken(self) -> Sequence[Arrival]:
        """Arrivals that were not refused; a message that came twice is there twice."""
        return [arrival for arrival in self.arrivals if not arrival.unwanted]

    def first(self) -> dict[str, Arrival]:
        """By key, in the order in which they came first."""
        found: dict[str, Arrival] = {}
        for arrival in self.taken:
            found.setdefault(arrival.key, arrival)
        return found

    def again(self) -> int:
        """How often a message came that had been taken before."""
        return len(self.taken) - len(self.keys)

    def changed(self) -> int:
        """Keys under which different bodies came."""
        different = Counter(key for key, _ in {(arrival.key, arrival.digest) for arrival in self.taken})
        return sum(1 for count in different.values() if count > 1)

    def busiest(self, seconds: float) -> float:
        """Arrivals a second in the fullest stretch of that many seconds."""
        times = sorted(arrival.at for arrival in self.arrivals)
        most, start = 0, 0
        for end, at in enumerate(times):
            while at - times[start] > seconds:
                start += 1
            most = max(most, end - start + 1)
        return most / seconds

    def overtaken(self, due: dict[str, Any]) -> int:
        """The most messages that were due before some message and came after it; `due` has the moment of each key.

        What has the same moment has no order.
        """
        worst = 0
        later: list[Any] = []  # the moments of what came afterwards, sorted
        for key in reversed(self.first()):
            if key in due:
                place = bisect_left(later, due[key])
                worst = max(worst, place)
                later.insert(place, due[key])
        return worst

    @property
    def seconds(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1].at - self.arrivals[0].at if self.arrivals else 0.0
