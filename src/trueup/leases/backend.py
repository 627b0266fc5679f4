"""What can keep a lease. All of it is synchronous: leases are renewed from threads, which an event loop cannot hold up."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

Backend: TypeAlias = Literal["postgres", "advisory", "redis"]


class LeaseBackend(Protocol):
    """Terms only grow; renewing and releasing name the term, and never touch another holder's lease."""

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        """One of three answers: the new term; None: another holder has it; or NotAcquired (`unreachable`) is raised, with a reason.

        That is for everything that is not known: a keeper that is away, refuses or answers too late, and claims that met. None is
        returned only when another holder was seen, because a run under a lease is skipped then, and postponed otherwise.
        """
        ...

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        """Extend it. False: it is lost. Raises when that cannot be known at the moment."""
        ...

    def release(self, name: str, holder: UUID, term: int) -> None:
        """Give it back, if it is still ours."""
        ...

    def renew_every(self, ttl: timedelta) -> float:
        """Seconds between renewals."""
        ...

    def fence_name(self, name: str) -> str:
        """Under which name PostgreSQL keeps the term."""
        ...

    def close(self) -> None: ...
