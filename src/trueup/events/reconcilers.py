"""What happens to reconcilers and their sweeps, and to scans."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class SweepCompleted(Event):
    """A sweep found nothing more to do, or its time was up. Sweeps that found no row are not told of."""

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
    """A sweep was ended by an error; the next one comes after `again_s`. `trueup reconcilers list` shows it until one goes through."""

    name = "sweep.failed"
    reconciler: str
    error_type: str
    error: str
    again_s: float


@dataclass(frozen=True, slots=True)
class SweepRefused(Event):
    """A sweep did not begin: it would have touched a larger part of the table than it may."""

    name = "sweep.refused"
    reconciler: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReconcilerDeclared(Event):
    """A worker looked at the table of a reconciler, and will sweep it."""

    name = "reconciler.declared"
    reconciler: str
    table: str


@dataclass(frozen=True, slots=True)
class ReconcilerPaused(Event):
    """A reconciler rests: it failed for the same reason over and over, or a person paused it. With a key, only rows of that key do."""

    name = "reconciler.paused"
    reconciler: str
    reason: str
    seconds: float
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ReconcilerResumed(Event):
    """A reconciler, or rows of this key of it, work again after a pause."""

    name = "reconciler.resumed"
    reconciler: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class IndexMissing(Event):
    """A reconciler's claim would read a large table from end to end; `ddl` makes the index that would serve it."""

    name = "reconciler.index_missing"
    reconciler: str
    table: str
    rows: int
    ddl: str


@dataclass(frozen=True, slots=True)
class NaiveTimestamp(Event):
    """A reconciler decides by a column without a time zone, whose values are taken as UTC; `ddl` gives it one."""

    name = "reconciler.naive_timestamp"
    reconciler: str
    table: str
    column: str
    ddl: str


@dataclass(frozen=True, slots=True)
class ScanCompleted(Event):
    """A scan came to its end."""

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
