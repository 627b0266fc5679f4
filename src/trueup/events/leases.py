"""What happens to leases of users' code."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class LeaseAcquired(Event):
    """A lease of users' code was taken by this process."""

    name = "lease.acquired"
    lease: str
    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """A lease of users' code passed, or went to somebody else, while this process used it."""

    name = "lease.lost"
    lease: str
    term: int
    holder: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseNotReleased(Event):
    """A lease of users' code could not be given back; it ends by itself when its time has passed."""

    name = "lease.not_released"
    lease: str
    term: int
    holder: str
    error: str


@dataclass(frozen=True, slots=True)
class LeaseGrantedOpenly(Event):
    """Redis is away and `redis_unavailable="open"`: a lease was given, or is kept, without asking it. Others may have it, too."""

    name = "lease.granted_openly"
    lease: str
    term: int
    holder: str
    reason: str
