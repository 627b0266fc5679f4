"""A row in hand: waiting, being handled, or about to be written."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from psycopg import AsyncConnection

from trueup.leases.lost import Lost
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.outcome import Outcome
from trueup.store.db.message import Answers
from trueup.work.rows.sweep import Sweep

Reason = Literal["lost", "shutdown"]
Opened = tuple[AsyncConnection[Any], Answers]  # with the row locked on it; the last answer says whether

# Between the event loop and the renewer's thread: a renewal may change what an outcome is compared with, so a row is either
# renewed or written.
_TURNS = threading.Lock()


@dataclass(slots=True, eq=False)
class Held:
    """Written by the event loop, read by the renewer's thread, too."""

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
    sweep: Sweep = field(default_factory=Sweep)  # the one that it was claimed in
    settled: bool = False  # and counted
    noted: bool = False  # the database knows that its handler has begun
    pause_key: str | None = None  # of its breaker, with `pause_by=`
    renewing: bool = False
    writing: bool = False

    def kept(self, now: float) -> bool:
        """Whether its lease is to be renewed: not once its handler has used up its time, whatever that still does."""
        return self.keep and not self.writing and (self.until is None or now < self.until)

    def begin_renewing(self, now: float) -> bool:
        """False when it must not be renewed now."""
        with _TURNS:
            self.renewing = self.kept(now)
            return self.renewing

    def begin_writing(self) -> bool:
        """False while it is being renewed: what it is compared with may change."""
        with _TURNS:
            self.writing = not self.renewing
            return self.writing

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


def claims_apart(rows: Iterable[ClaimedRow]) -> Iterator[int]:
    """For each row, how many claims of the same row come before it. Statements answer by key: they take one claim of a row."""
    before: Counter[str] = Counter()
    for row in rows:
        yield before[row.key]
        before[row.key] += 1
