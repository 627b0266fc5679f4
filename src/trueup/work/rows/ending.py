"""The outcome of one row, from the end of its handler until it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Count
from trueup.reconcile.decide import Move
from trueup.reconcile.outcome import Stay, To
from trueup.work.rows.held import RowInHand
from trueup.work.writing import Pending


@dataclass(slots=True, eq=False)
class RowEnding(Pending):
    held: RowInHand
    move: Move
    duration: float = 0.0
    counts_as: Count | None = None  # if it is known before the statement is sent
    decided: Move | None = None  # the move that the database refused, if another one is written instead
    touch: bool = True  # whether what the claim wrote to the user's row may be undone; when that is refused, it stays
    busy: int = 0
    busy_since: float | None = None  # its row has been locked by another transaction since then
    # After a statement with several outcomes took too long, each is sent alone with a short time limit ("unknown"). One that exceeds it
    # is "slow".
    speed: Literal["usual", "unknown", "slow"] = "usual"

    @property
    def row(self) -> ClaimedRow:
        return self.held.row

    def failed(self, error: BaseException) -> None:
        Pending.failed(self, error)
        self.held.end_turn("write")


def size_of(move: Move) -> int:
    """The size of its texts. Its other values are small, or are not known before it is sent."""
    outcome, failure = getattr(move, "outcome", None), getattr(move, "failure", None)
    size = 0 if failure is None else len(failure.message) + len(failure.traceback)
    if isinstance(outcome, To | Stay):
        size += sum(len(value) for value in outcome.columns.values() if type(value) in (str, bytes))
    return size
