"""A claimed row, and how far it has come: waiting → running → writing → gone.

A row waits for a place, its handler runs, its outcome is written, and then it is gone. It may leave out steps: a row that is released
was never running, and one whose lease is lost is gone at once. Beside that it is at times renewed, on the renewer's thread.
"""

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

State = Literal["waiting", "running", "writing", "gone"]
Turn = Literal["renewal", "write"]  # a statement with this row that is under way
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
    state: State = "waiting"
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
    noted: bool = False  # the database knows that its handler has begun
    pause_key: str | None = None  # of its breaker, with `pause_by=`
    turn: Turn | None = None

    @property
    def in_hand(self) -> bool:
        """Whether its handler may still begin, or end."""
        return self.state in ("waiting", "running")

    def kept(self, now: float) -> bool:
        """Whether its lease is to be renewed: not once its handler has used up its time, whatever that still does."""
        return self.keep and self.turn != "write" and (self.until is None or now < self.until)

    def begin_renewing(self, now: float) -> bool:
        """False when it must not be renewed now."""
        with _TURNS:
            if not self.kept(now):
                return False
            self.turn = "renewal"
            return True

    def begin_writing(self) -> bool:
        """False while it is being renewed: what it is compared with may change."""
        with _TURNS:
            if self.turn == "renewal":
                return False
            self.turn = "write"
            return True

    def end_turn(self, turn: Turn) -> None:
        """The statement that was under way has ended."""
        with _TURNS:
            if self.turn == turn:
                self.turn = None

    def must_end(self) -> bool:
        """Whether it is waited for although it was cancelled: released while it still runs, the row would be handled twice at once."""
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
