"""The current state, composed for the screen."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from trueup.demo.books import Front, Messages
from trueup.demo.fleet import Condition

OVER = 3.0  # seconds over which the rate is measured


@dataclass(frozen=True, slots=True)
class WorkerView:
    name: str
    condition: Condition
    in_hand: int


@dataclass(frozen=True, slots=True)
class View:
    messages: Messages
    workers: Sequence[WorkerView]
    front: Front | None
    per_second: float
    resting: bool  # the circuit breaker is open: the fleet waits for the receiver
    receiver_is_up: bool
    received: int
    again: int


class DeliveryRate:
    """Deliveries per second, over the last few seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def measure(self, now: float, count: int) -> float:
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - OVER:
            self._seen.popleft()
        since, before = self._seen[0]
        return (count - before) / (now - since) if now > since else 0.0


def hours(length: timedelta) -> str:
    """`23h05m`"""
    minutes = round(length.total_seconds() / 60)
    return f"{minutes // 60}h{minutes % 60:02}m"
