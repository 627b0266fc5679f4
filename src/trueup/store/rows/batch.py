"""A batch of claimed rows, and how far a sweep has come with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trueup.reconcile.claimed import ClaimedRow
from trueup.store.rows.compose import Place

# Rows that a claim looks at, at least: those that are known already are passed over this many at a time.
MIN_WINDOW = 1_000


@dataclass(frozen=True, slots=True)
class Position:
    """How far a sweep has come in its order."""

    place: Place
    order: str | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DuePosition:
    """How far a sweep has come among rows whose time has come again."""

    due_at: datetime | None = None
    key: str = ""


@dataclass(slots=True)
class Batch:
    """Claimed rows, each with how long to wait before it may be started (with a rate)."""

    rows: list[ClaimedRow] = field(default_factory=list)
    waits: list[timedelta] = field(default_factory=list)
    position: Position | None = None
    due_position: DuePosition | None = None  # of rows whose time has come again
    exhausted: bool = False  # there is nothing behind it
    passed: int = 0  # rows before its position that were known already
    ask_again_after: timedelta | None = None  # the fleet's rate allows nothing yet
