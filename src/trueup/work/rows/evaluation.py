"""Keeps a row whose evaluation raises from ending every sweep.

`where=` may raise for a single row (a division by zero, a text that is not a number), and PostgreSQL then refuses the whole statement.
After such a refusal, statements are guarded: they evaluate `where=` only for rows that are not known to raise. If a guarded statement is
refused, too, the rows that it looks at are evaluated in parts, down to single rows. A row that raises gets a failed attempt with
PostgreSQL's message, rests, and is quarantined after its last attempt; sweeps pass over it meanwhile.

If the expression raises for every row, the expression is wrong. So a row is blamed only if another row can be evaluated, or if it has
been blamed before; otherwise the sweep ends with the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import psycopg
from psycopg import errors

from trueup.clock import elapsed
from trueup.events import Events
from trueup.jobs.failure import describe, type_name
from trueup.reconcile.counts import Counts
from trueup.store.db.connect import is_locked_out, unanswered
from trueup.store.rows.batch import Position
from trueup.store.rows.evaluating import Candidate, Evaluated, TooSlow, candidates, candidates_again
from trueup.store.rows.purges import Purges
from trueup.store.rows.rows import Rows
from trueup.work.rows.refusals import NotEvaluated, NotEvaluatedInTime, blame
from trueup.work.rows.sweep import Walk
from trueup.work.writing import SLOW

MAX_WINDOWS = 5  # of rows that all raise; after that the expression counts as wrong


def took_too_long(error: BaseException, begun: float) -> bool:
    """Whether a statement was given up after a long time: the reason is then a lock or too many rows, and not one row's content."""
    return isinstance(error, errors.QueryCanceled | errors.LockNotAvailable) and elapsed() - begun >= SLOW


class Evaluation:
    def __init__(self, rows: Rows, events: Events) -> None:
        self._rows = rows
        self._events = events

    async def past(self, walk: Walk, counts: Counts, *, slow: bool = False) -> bool:
        """After a refused claim, find the rows that raise, or (`slow`) take too long.

        True if the next claim will pass over one more, so another try is worth it.
        """
        newly = self._rows.guard()
        if newly and not slow:
            return True
        again = await candidates_again(self._rows, walk.due_position, walk.cut_off)
        found, evaluated = await self._until_one_works(walk, again)
        if await self._rows.drop_unreadable([row for row in found if row.key in evaluated.refused]):
            return True
        refused = [row for row in found if row.claimable and row.key in evaluated.refused]
        if not evaluated.any_works:
            refused = [row for row in refused if row.last_error in (NOT_EVALUATED, NOT_IN_TIME)]
        if not refused:
            return newly
        reconciler = self._rows.reconciler
        blamed = [(row, not_evaluated(self._rows.found.spec.where, evaluated.refused[row.key])) for row in refused]
        await blame(reconciler.name, reconciler.retry, blamed, self._rows.refuse, counts, self._events)
        return True

    async def probe(self, cut_off: datetime, behind: Position | None = None) -> tuple[bool, int | None]:
        """`RowClaims.probe`. If it is refused, the answer is that there may be rows without a record: a claim then finds those that raise."""
        begun = elapsed()
        try:
            return await self._rows.claims.probe(cut_off, behind)
        except psycopg.Error as error:
            if unanswered(error) or (took_too_long(error, begun) and not may_be_where(self._rows, error)):
                raise
            self._rows.guard()
            return True, None

    async def _until_one_works(self, walk: Walk, found: Sequence[Candidate]) -> tuple[Sequence[Candidate], Evaluated]:
        """Evaluate the rows of a claim, and further rows until one of them can be evaluated."""
        rows, position = self._rows, walk.position
        evaluated = Evaluated()
        for _ in range(MAX_WINDOWS):
            window = await candidates(rows, position, walk.begun_at)
            known = {row.key for row in found}
            fresh = [row for row in window if row.key not in known]
            found = [*found, *fresh]
            unknown = [row for row in found if row.key not in evaluated]
            evaluated.include(await rows.evaluate(unknown))
            if evaluated.any_works or not window:
                break
            position = window[-1].position
        return found, evaluated


def not_evaluated(where: str | None, error: Exception) -> NotEvaluated:
    what = "read a column" if where is None else "evaluate where=, or read a column,"
    kind = NotEvaluatedInTime if isinstance(error, TooSlow) else NotEvaluated
    made = kind(f"PostgreSQL cannot {what} for this row: {describe(error)}")
    made.__cause__ = error
    return made


async def forget(of: Rows | Purges) -> None:
    """Drop what is known about rows that have left the reconciler's states, except those whose evaluation raises."""
    made, begun = of.made, elapsed()
    try:
        if not (isinstance(of, Rows) and of.guarded):
            await of.forget()
            return
    except psycopg.Error as error:
        if unanswered(error) or (took_too_long(error, begun) and not may_be_where(of, error)):
            raise
        if await of.changed_since(made, refusal=error):  # type: ignore[arg-type]
            await of.forget()
            return
    known = await candidates_again(of, None, None, of.set_aside_until)
    unread = [row.key for row in known if row.last_error == NOT_IN_TIME]  # each would take as long again
    refused = (await of.evaluate([row for row in known if row.key not in unread])).refused
    dropped = await of.drop_unreadable([row for row in known if row.key in refused])
    await of.forget([*unread, *(key for key in refused if key not in dropped)])


def may_be_where(of: Rows | Purges, error: Exception) -> bool:
    """Whether `where=` may have taken too long for a row."""
    return not is_locked_out(error) and of.found.spec.where is not None


NOT_EVALUATED, NOT_IN_TIME = type_name(NotEvaluated("")), type_name(NotEvaluatedInTime(""))
