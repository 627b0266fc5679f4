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
from trueup.work.rows.held import Held


@dataclass(slots=True)
class Handled:
    """How a run ended. `refused` when its row could not be had, or its own transaction was rolled back for it."""

    ended: Ended
    made: Any = None
    refused: Done | None = None
    settled: Outcome | None = None  # given to ctx.transaction(): what is returned afterwards is not looked at
    unspent: bool = False  # the database went away, or chose another transaction over ours: no fault of the handler's


@asynccontextmanager
async def certain(held: Held, handled: Handled) -> AsyncIterator[None]:
    """Around a transaction with an outcome: an answer from the server, even a refusal to commit, leaves nothing open."""
    try:
        yield
    except Exception as error:
        handled.unspent = isinstance(error, psycopg.Error) and is_no_fault(error)
        if not unanswered(error):
            held.uncertain = False  # the server has refused it, or it was never sent
            held.keep = held.cancelled is None  # and the row is still ours to keep
            held.end_turn("write")
        raise
    held.uncertain = False


def gone(row: ClaimedRow) -> LostClaim:
    return LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} was lost")
