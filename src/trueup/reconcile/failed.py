"""A failed attempt at a row, as `failed=` and `exhausted=` get it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trueup.jobs.failure import describe, type_name


@dataclass(frozen=True, slots=True)
class Failed:
    error: BaseException
    attempt: int
    max_attempts: int
    again_at: datetime | None  # when it is tried again, by the database's clock; None: it is not

    @property
    def message(self) -> str:
        """The error in words that can be stored: cleaned, cut to size, passwords masked."""
        return f"{type_name(self.error)}: {describe(self.error)}"
