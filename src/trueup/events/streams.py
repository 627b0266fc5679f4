"""What is noticed about streams that jobs publish to."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class DuplicateWindowShort(Event):
    """A NATS stream drops message ids sooner than an attempt may be repeated, so it can hold a message twice.

    `ensure_stream()` lengthens its `duplicate_window`. Both are in seconds.
    """

    name = "nats.duplicate_window_short"
    stream: str
    window: float
    needed: float
