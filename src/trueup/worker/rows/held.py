"""A row in hand: waiting, or being handled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import AsyncConnection

from trueup.lost import Lost
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.outcome import Outcome
from trueup.store.message import Answers

Reason = Literal["lost", "shutdown"]
Opened = tuple[AsyncConnection[Any], Answers]  # with the row locked on it; the last answer says whether


@dataclass(slots=True, eq=False)
class Held:
    """Written by the event loop, read by the keeper's thread, too."""

    row: ClaimedRow
    renewed: float  # when its lease was last confirmed, counted from before that was asked
    not_before: float = 0.0  # its handler may begin then; by the fleet's rate
    task: asyncio.Task[None] | None = None
    started: float | None = None  # its handler
    until: float | None = None  # its handler's time is up then
    lost: Lost | None = None
    cancelled: Reason | None = None
    keep: bool = True
    written: Outcome | None = None  # in a transaction of the handler's, which is committed: nothing is left to lose
    claimed: float = 0.0  # when its claim was answered
    uncertain: bool = False  # that commit was sent, and no answer has come
    # With claim='row_lock', the end of another row locks this one; None comes of it when it does not come to that.
    opening: asyncio.Future[Opened | None] | None = None

    def kept(self, now: float) -> bool:
        """Whether its lease is to be renewed: not once its handler has used up its time, whatever that still does."""
        return self.keep and (self.until is None or now < self.until)

    def must_end(self) -> bool:
        """Whether it is waited for although it was cancelled: given back while it still runs, the row would be handled twice at once."""
        return self.cancelled == "shutdown"

    def cancel(self, reason: Reason) -> None:
        if self.cancelled is None:
            self.cancelled = reason
            self.keep = False
            if self.lost is not None:
                self.lost.set()  # threads cannot be cancelled, only told
            if self.task is not None:
                self.task.cancel()
