"""What a handler's run came to, until it is in the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.counts import Count
from trueup.reconcile.decide import Move
from trueup.reconcile.outcome import Stay, To
from trueup.work.rows.held import Held
from trueup.work.writing import Pending


@dataclass(slots=True, eq=False)
class Ending(Pending):
    held: Held
    move: Move
    duration: float = 0.0
    counts_as: Count | None = None  # known already, whatever the statement says
    decided: Move | None = None  # what was to be written before the database refused it
    touch: bool = True  # whether what the claim wrote to the user's row may be undone; when that is refused, it stays
    busy: int = 0
    busy_since: float | None = None  # its row has been locked by another transaction since then
    # After a statement with it and others has taken too long it is written alone, at first within a moment. A slow one was not.
    speed: Literal["usual", "unknown", "slow"] = "usual"

    @property
    def row(self) -> ClaimedRow:
        return self.held.row

    def failed(self, error: BaseException) -> None:
        Pending.failed(self, error)
        self.held.end_turn("write")


def size_of(move: Move) -> int:
    """Of its texts; what else it carries is small, or is not known before it is sent."""
    outcome, failure = getattr(move, "outcome", None), getattr(move, "failure", None)
    size = 0 if failure is None else len(failure.message) + len(failure.traceback)
    if isinstance(outcome, To | Stay):
        size += sum(len(value) for value in outcome.columns.values() if type(value) in (str, bytes))
    return size
