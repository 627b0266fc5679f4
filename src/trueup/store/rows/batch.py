"""A batch of claimed rows, and how far a sweep has come with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trueup.reconcile.claimed import ClaimedRow
from trueup.store.rows.compose import Place

# The minimum number of rows that a claim looks at: it passes over rows with a record this many at a time.
MIN_WINDOW = 1_000


@dataclass(frozen=True, slots=True)
class Position:
    """How far a sweep has come in its order."""

    place: Place
    order: str | None
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DuePosition:
    """How far a sweep has come among rows that are due again."""

    due_at: datetime | None = None
    key: str = ""


@dataclass(slots=True)
class Batch:
    """Claimed rows. `waits` says how long each must wait before its handler may begin (with a rate)."""

    rows: list[ClaimedRow] = field(default_factory=list)
    waits: list[timedelta] = field(default_factory=list)
    position: Position | None = None
    due_position: DuePosition | None = None  # among rows that are due again
    exhausted: bool = False  # there are no rows behind it
    passed: int = 0  # rows in front of its position that have a record already
    heavy: bool = False  # it has as many bytes as may be claimed together, so further rows were left out
    ask_again_after: timedelta | None = None  # the fleet's rate allows no row before that
