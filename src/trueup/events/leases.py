"""What happens to leases of user code."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.events.event import Event


@dataclass(frozen=True, slots=True)
class LeaseAcquired(Event):
    """This process acquired a lease for user code."""

    name = "lease.acquired"
    lease: str
    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    """A lease of user code expired, or another holder took it over, while this process used it."""

    name = "lease.lost"
    lease: str
    term: int
    holder: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseNotReleased(Event):
    """A lease of user code could not be released; it expires after its ttl."""

    name = "lease.not_released"
    lease: str
    term: int
    holder: str
    error: str


@dataclass(frozen=True, slots=True)
class LeaseGrantedOpenly(Event):
    """Redis is unreachable and `redis_unavailable="open"`: a lease was granted or kept without it. Other processes may hold it, too."""

    name = "lease.granted_openly"
    lease: str
    term: int
    holder: str
    reason: str
