"""What happens to rows of users' tables."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class RowsClaimed(Event):
    """A batch of rows was claimed for a reconciler."""

    name = "row.claimed"
    reconciler: str
    holder: str
    count: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RowChanged(Event):
    """An outcome was written to its row. `outcome` is To, Stay or Delete; `lateness_ms` counts from when the row was due or stale."""

    name = "row.changed"
    reconciler: str
    key: str
    outcome: str
    state_from: str | None
    state_to: str | None
    attempt: int
    lateness_ms: float
    duration_ms: float


@dataclass(frozen=True, slots=True)
class RowUnchanged(Event):
    """A handler had nothing to write; the row comes up again after `again_ms`."""

    name = "row.unchanged"
    reconciler: str
    key: str
    again_ms: float


@dataclass(frozen=True, slots=True)
class RowConflict(Event):
    """An outcome was not written: another transaction had changed or deleted the row meanwhile.

    If the row still matches its reconciler, this counts as a failed attempt.
    """

    name = "row.conflict"
    reconciler: str
    key: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RowUndone(Event):
    """An outcome was not written: a trigger of the table kept the row as it was. It counts as a failed attempt."""

    name = "row.undone"
    reconciler: str
    key: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RowRetried(Event):
    """A handler failed, or the database refused its outcome; the row is tried again after `delay_ms`."""

    name = "row.retried"
    reconciler: str
    key: str
    attempt: int
    max_attempts: int
    delay_ms: float
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RowQuarantined(Event):
    """A row failed for good and is quarantined until a person releases it."""

    name = "row.quarantined"
    reconciler: str
    key: str
    attempt: int
    reason: str
    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class RowReleased(Event):
    """A claimed row was handed back unfinished, at a shutdown; its attempt is given back."""

    name = "row.released"
    reconciler: str
    key: str


@dataclass(frozen=True, slots=True)
class RowClaimLost(Event):
    """An outcome was refused: the row's lease had expired (`database`), or this worker no longer trusted it (`local`).

    `unknown`: it was sent and no answer came; it may have been written, and is not written again.
    """

    name = "row.claim_lost"
    reconciler: str
    key: str
    term: int
    refused_by: str


@dataclass(frozen=True, slots=True)
class RowProposed(Event):
    """In shadow mode: what would have been done to a row."""

    name = "row.proposed"
    reconciler: str
    key: str
    outcome: str


@dataclass(frozen=True, slots=True)
class RowsFreed(Event):
    """A person released or discarded quarantined rows, or deleted all records of a reconciler."""

    name = "row.freed"
    reconciler: str
    count: int
    what: str
