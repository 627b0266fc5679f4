"""A claimed row and its state in this process: waiting → running → writing → gone.

A row waits for a place, its handler runs, its outcome is written, and then it is gone. It may skip states: a row that is released
was never running, and a row whose lease is lost is gone at once. Meanwhile the renewer's thread renews its lease.
`Handled` says how the run of its handler ended, and whether what it wrote is certain.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg
from psycopg import AsyncConnection

from trueup.errors import LostClaim
from trueup.leases.lost import LostSignal
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Ended
from trueup.reconcile.outcome import Outcome
from trueup.store.db.connect import is_no_fault, unanswered
from trueup.store.db.message import Answers
from trueup.store.rows.asks import Done
from trueup.work.rows.sweep import Sweep

State = Literal["waiting", "running", "writing", "gone"]
Turn = Literal["renewal", "write"]  # the statement about this row that is under way
Reason = Literal["lost", "shutdown"]
Opened = tuple[AsyncConnection[Any], Answers]  # a connection, and the answers to the statements that lock the row on it

# The event loop and the renewer's thread take turns at a row: a renewal may change the values that an outcome is compared with, so a
# row is never renewed and written at the same time.
_TURNS = threading.Lock()


@dataclass(slots=True, eq=False)
class RowInHand:
    """Written by the event loop, read by the renewer's thread, too."""

    row: ClaimedRow
    renewed: float  # when its last successful claim or renewal was sent
    not_before: float = 0.0  # the fleet's rate limit lets its handler begin then
    state: State = "waiting"
    task: asyncio.Task[None] | None = None
    started: float | None = None  # when its handler began
    until: float | None = None  # when its handler's time is up
    lost: LostSignal | None = None
    cancelled: Reason | None = None
    keep: bool = True
    written: Outcome | None = None  # the outcome that the handler has committed in its own transaction
    claimed: float = 0.0  # when its claim was answered
    uncertain: bool = False  # the commit was sent, and no answer has come
    # With claim='row_lock', the message that ends another row locks this one. None: this row has to be locked by itself.
    opening: asyncio.Future[Opened | None] | None = None
    sweep: Sweep = field(default_factory=Sweep)  # the sweep that claimed it
    worked: bool = False  # its handler has returned an outcome, which is still to be written
    noted: bool = False  # the database knows that its handler has begun
    pause_key: str | None = None  # the key of its breaker, with `pause_by=`
    turn: Turn | None = None

    @property
    def in_hand(self) -> bool:
        """Whether its handler may still begin, or end."""
        return self.state in ("waiting", "running")

    def kept(self, now: float) -> bool:
        """Whether its lease is to be renewed: not after its handler's time is up, even if the handler still runs."""
        return self.keep and self.turn != "write" and (self.until is None or now < self.until)

    def begin_renewing(self, now: float) -> bool:
        """False when it must not be renewed now."""
        with _TURNS:
            if not self.kept(now):
                return False
            self.turn = "renewal"
            return True

    def begin_writing(self) -> bool:
        """False while it is being renewed: the values that the outcome is compared with may change."""
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
        """Whether to wait for the handler although it was cancelled: if the row were released now, two handlers could run for it."""
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


@dataclass(slots=True)
class Handled:
    """How a run ended. `refused`: the row could not be locked or written, so its own transaction was rolled back."""

    ended: Ended
    made: Any = None
    refused: Done | None = None
    settled: Outcome | None = None  # the outcome given to ctx.transaction(); the handler's return value is then ignored
    unspent: bool = False  # the database went away, or rolled it back for another transaction: no attempt is spent


@asynccontextmanager
async def certain(held: RowInHand, handled: Handled) -> AsyncIterator[None]:
    """Around a transaction with an outcome: after any answer of the server, even a refusal, the outcome is no longer uncertain."""
    try:
        yield
    except Exception as error:
        handled.unspent = isinstance(error, psycopg.Error) and is_no_fault(error)
        if not unanswered(error):
            held.uncertain = False  # the server has refused it, or it was never sent
            held.keep = held.cancelled is None  # and the lease of the row is renewed again
            held.end_turn("write")
        raise
    held.uncertain = False


def gone(row: ClaimedRow) -> LostClaim:
    return LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} was lost")
