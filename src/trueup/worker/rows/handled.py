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
from trueup.store.connect import RETRYABLE
from trueup.store.message import StalePlan
from trueup.store.rows import Done
from trueup.worker.rows.held import Held

# No answer at all, a server that stops or is starting, too many connections, a deadlock, a serialisation failure.
NOT_OUR_FAULT = (None, "57P01", "57P02", "57P03", "53300", "40P01", "40001")


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
    except RETRYABLE as error:
        state = error.sqlstate if isinstance(error, psycopg.Error) else None
        handled.unspent = isinstance(error, StalePlan) or (isinstance(error, psycopg.Error) and state in NOT_OUR_FAULT)
        if state is not None and not state.startswith("57P"):
            held.uncertain = False  # the server has refused it; one that stops may have done it
        raise
    except psycopg.Error:
        held.uncertain = False
        raise
    held.uncertain = False


def gone(row: ClaimedRow) -> LostClaim:
    return LostClaim(f"{row.reconciler} {row.key}: the lease of term {row.term} is gone")
