"""A tick, as the handler that runs for it sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Tick:
    """One due time of a schedule. `lateness` is how long after it the run was claimed; `attempt` starts at 1."""

    schedule: str
    due_at: datetime
    lateness: timedelta
    attempt: int
