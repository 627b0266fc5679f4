"""How a run of a handler ended, and whether what it wrote is certain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from trueup.errors import LostClaim
from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.decide import Ended
from trueup.reconcile.outcome import Outcome
from trueup.store.db.connect import is_no_fault, unanswered
from trueup.store.rows.asks import Done
from trueup.work.rows.held import RowInHand


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
