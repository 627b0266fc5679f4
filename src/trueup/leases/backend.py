"""Lease backends. They are synchronous: leases are renewed from threads, which a blocked event loop cannot delay."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Protocol, TypeAlias
from uuid import UUID

Backend: TypeAlias = Literal["postgres", "advisory", "redis"]


class LeaseBackend(Protocol):
    """Terms only grow; renewing and releasing name the term, and never touch another holder's lease."""

    def acquire(self, name: str, holder: UUID, ttl: timedelta) -> int | None:
        """One of three answers: the new term; None: another holder has it; or NotAcquired (`unreachable`) is raised, with a reason.

        It is raised whenever the answer is unknown: the backend is unreachable, refuses or answers too late, or claims collided.
        None means that another holder was seen. The difference matters: a scheduled run is skipped then, and postponed otherwise.
        """
        ...

    def renew(self, name: str, holder: UUID, term: int, ttl: timedelta) -> bool:
        """Extend it. False: it is lost. Raises when the backend gives no answer."""
        ...

    def release(self, name: str, holder: UUID, term: int) -> None:
        """Release it, if it is still ours."""
        ...

    def renew_every(self, ttl: timedelta) -> float:
        """Seconds between renewals."""
        ...

    def fence_name(self, name: str) -> str:
        """Under which name PostgreSQL keeps the term."""
        ...

    def close(self) -> None: ...
