"""Rows that the database refuses: the errors of those whose outcomes could not be written, and a failed attempt for each of the others.

The others are rows that could not be claimed, or that need no claim (purges). A refusal that may pass (a lock, a timeout, a full disk)
spends no attempt. When the database refuses to record the failure as well, the sweep ends with that error, and no row is blamed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from trueup.backoff import Retry
from trueup.events import Events, RowQuarantined, RowRetried
from trueup.jobs.failure import Failure, describe, type_name
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import may_pass
from trueup.store.rows.evaluating import KnownRow, Refusal

# Times that the server may ask to repeat a statement about one row (deadlock, serialization failure). After that, a trigger is the reason.
MAX_REPEATS = 3


class NotEvaluated(Exception):
    """PostgreSQL cannot evaluate `where=` for the row, or cannot read it."""


class NotEvaluatedInTime(NotEvaluated):
    """The same, because it takes too long."""


class OutcomeUndone(Exception):
    """A trigger of the table kept the row as it was."""


class OutcomeContested(Exception):
    """The row was changed by another transaction while its handler ran, and still matches this reconciler."""


class RowBusy(Exception):
    """Another transaction has had the row locked for too long, so its outcome could not be written."""


Record = Callable[[Sequence[Refusal]], Awaitable[set[str]]]  # returns keys; those of the others were recorded elsewhere


async def blame(
    name: str,
    retry: Retry,
    refused: Sequence[tuple[KnownRow, Exception]],
    record: Record,
    counts: Counts,
    events: Events,
) -> None:
    refusals = [_refusal(retry, row, error) for row, error in refused]
    recorded = await record(refusals)
    for refusal, (_, error) in zip(refusals, refused, strict=True):
        key, failure = refusal.row.key, refusal.failure
        if key not in recorded:
            continue  # another worker has recorded it
        counts.claimed += 1
        if refusal.delay is None:
            counts.quarantined += 1
            quarantined = RowQuarantined(name, key, refusal.attempt, refusal.reason, failure.type, failure.message)
            events.emit(quarantined.because(error))
        else:
            counts.retry += 1
            ms, most = refusal.delay.total_seconds() * 1000, retry.max_attempts
            retried = RowRetried(name, key, failure.attempt, most, ms, failure.type, failure.message)
            events.emit(retried.because(error))


def _refusal(retry: Retry, row: KnownRow, error: Exception) -> Refusal:
    spent = not may_pass(error.__cause__ or error)
    attempt = row.attempt + spent
    failure = Failure(row.attempt + 1, type_name(error), describe(error), "")
    try:
        delay = retry.delay(row.attempt + 1) if not spent or attempt < retry.max_attempts else None
    except Exception:  # a Retry of the user's own
        return Refusal(row, failure, attempt, None, "its retry rule fails")
    reason = failure.message if delay is not None else "out of attempts"
    return Refusal(row, failure, attempt, delay, reason)
