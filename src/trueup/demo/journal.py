"""The receiver's journal: the other side of every proof, independent of the database."""

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
    unwanted: bool = False  # the receiver answered that it must not be sent again


@dataclass(slots=True)
class Journal:
    path: Path
    arrivals: list[Arrival] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)  # of accepted messages
    _read: int = 0

    def refresh(self) -> None:
        """Read the lines that were added."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # still being written
                    break
                self._read += len(line)
                self._add(Arrival(**orjson.loads(line)))

    def _add(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        if not arrival.unwanted:
            self.keys.add(arrival.key)

    @property
    def taken(self) -> Sequence[Arrival]:
        """Arrivals that were not refused; a message that arrived twice is listed twice."""
        return [arrival for arrival in self.arrivals if not arrival.unwanted]

    def first(self) -> dict[str, Arrival]:
        """By key, in the order of their first arrivals."""
        found: dict[str, Arrival] = {}
        for arrival in self.taken:
            found.setdefault(arrival.key, arrival)
        return found

    def again(self) -> int:
        """How often an accepted message arrived again."""
        return len(self.taken) - len(self.keys)

    def changed(self) -> int:
        """Keys that arrived with different bodies."""
        different = Counter(key for key, _ in {(arrival.key, arrival.digest) for arrival in self.taken})
        return sum(1 for count in different.values() if count > 1)

    def busiest(self, seconds: float) -> float:
        """Arrivals per second in the busiest interval of that many seconds."""
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
        later: list[Any] = []  # the due times of later arrivals, sorted
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
