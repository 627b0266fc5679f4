"""A row in hand: waiting, or being handled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from trueup.lost import Lost
from trueup.reconcile.claimed import ClaimedRow

Reason = Literal["lost", "shutdown"]


@dataclass(slots=True)
class Held:
    row: ClaimedRow
    renewed: float  # when its lease was last confirmed, counted from before that was asked
    wait: timedelta = timedelta()
    task: asyncio.Task[None] | None = None
    started: float | None = None
    lost: Lost | None = None
    cancelled: Reason | None = None
    keep: bool = True  # its lease is to be renewed: not once its handler has used up its time

    def cancel(self, reason: Reason) -> None:
        if self.cancelled is None:
            self.cancelled = reason
            self.keep = False
            if self.lost is not None:
                self.lost.set()  # threads cannot be cancelled, only told
            if self.task is not None:
                self.task.cancel()
