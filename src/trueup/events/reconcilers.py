"""What happens to reconcilers and their sweeps, and to scans."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class SweepCompleted(Event):
    """A sweep found nothing more to do, or reached its deadline. Sweeps that found no row emit no event."""

    name = "sweep.completed"
    reconciler: str
    claimed: int
    changed: int
    unchanged: int
    conflict: int
    undone: int
    retry: int
    quarantined: int
    lost: int
    late: int
    worst_lateness_s: float
    average_lateness_s: float
    duration_ms: float
    rows_per_second: float


@dataclass(frozen=True, slots=True)
class SweepFailed(Event):
    """An error ended a sweep; the next one starts after `again_s`. `trueup reconcilers list` shows it until a sweep succeeds."""

    name = "sweep.failed"
    reconciler: str
    error_type: str
    error: str
    again_s: float


@dataclass(frozen=True, slots=True)
class SweepRefused(Event):
    """A sweep did not begin: it would have touched more of the table than `max_fraction` allows."""

    name = "sweep.refused"
    reconciler: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReconcilerDeclared(Event):
    """A worker inspected the table of a reconciler, and will sweep it."""

    name = "reconciler.declared"
    reconciler: str
    table: str


@dataclass(frozen=True, slots=True)
class ReconcilerPaused(Event):
    """The circuit breaker of a reconciler opened after repeated failures, or a person paused it. With a key, only for rows of that key."""

    name = "reconciler.paused"
    reconciler: str
    reason: str
    seconds: float
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ReconcilerResumed(Event):
    """The circuit breaker of a reconciler closed, or its pause ended. With a key, only for rows of that key."""

    name = "reconciler.resumed"
    reconciler: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class IndexMissing(Event):
    """A reconciler's claim would scan a large table; `ddl` creates the index that avoids it."""

    name = "reconciler.index_missing"
    reconciler: str
    table: str
    rows: int
    ddl: str


@dataclass(frozen=True, slots=True)
class NaiveTimestamp(Event):
    """A reconciler decides by a column without a time zone, whose values are read as UTC; `ddl` gives it one."""

    name = "reconciler.naive_timestamp"
    reconciler: str
    table: str
    column: str
    ddl: str


@dataclass(frozen=True, slots=True)
class ScanCompleted(Event):
    """A scan reached its end."""

    name = "scan.completed"
    scan: str
    items: int
    failed: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class ScanItemFailed(Event):
    """The handler of one item raised; the scan goes on."""

    name = "scan.item_failed"
    scan: str
    item: str
    error_type: str
    error: str
