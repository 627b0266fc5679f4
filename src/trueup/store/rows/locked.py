"""The statements of claim='row_lock': a row is locked, handled and written in one transaction.

Each statement is part of a message, so that one message can end the transaction of a row and begin that of the next row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import psycopg
from psycopg import AsyncConnection, errors

from trueup.reconcile.claimed import ClaimedRow
from trueup.reconcile.outcome import Delete, Stay, To
from trueup.store.db.message import Answers, Part, Query
from trueup.store.db.own_connection import fetch
from trueup.store.db.texts import text_of
from trueup.store.rows.compose import SQL
from trueup.store.rows.rows import Rows, numbered

Refusal = Literal["lost", "busy", "gone"]
# In change_locked.sql, remove_locked.sql; no language translates it.
_NOT_AS_READ = "trueup: the row is not as it was read"


def not_as_read(error: psycopg.Error | None) -> bool:
    """Whether an outcome was refused because the row was changed under its lock, which only the handler can have done."""
    return isinstance(error, errors.InvalidTextRepresentation) and _NOT_AS_READ in str(error)


class Locked:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        lease = SQL(str(round(rows.reconciler.lease_for.total_seconds() * 1000)))
        self._bound = rows.statements.compose("rows/bound", milliseconds=lease)
        # Only a handler that has the transaction can have touched the row.
        self._alone = rows.reconciler.handler.tx is None

    def locking(self, row: ClaimedRow) -> Sequence[Part]:
        """Begins a transaction, locks a claimed row in it and reads the row again; `values` takes the answers."""
        return b"BEGIN", self._bound, Query(self._rows.made.once("lock"), self._about(row))

    def values(self, row: ClaimedRow, answers: Answers) -> Mapping[str, Any] | None:
        """The values of the locked row; None when it could not be locked, and `why_not` says why."""
        found = answers.rows(len(answers) - 1)
        if not found:
            return None
        row.seen, *values = found[0]
        return dict(zip(self._rows.columns, values, strict=True))

    async def why_not(self, row: ClaimedRow, connection: AsyncConnection[Any]) -> Refusal:
        ((refusal,),) = await fetch(connection, self._rows.made.once("locked_out"), self._about(row))
        return cast(Refusal, refusal)

    def writing(self, row: ClaimedRow, outcome: To | Stay | Delete) -> Query:
        """Writes an outcome to a row that this transaction has locked.

        When the row is not as it was read, it fails (`not_as_read`), so that nothing which follows it happens. That it
        touches no row can only be a trigger's doing.
        """
        params = {**self._rows.about(row.holder), **numbered("k", row.key_texts)}
        params |= {"seen": row.seen, "seen_state": row.state}
        made = self._rows.made
        if isinstance(outcome, Delete):
            return Query(made.once("remove_alone" if self._alone else "remove_locked"), params)
        columns = tuple(sorted(outcome.columns))
        params["state"] = outcome.state if isinstance(outcome, To) else row.state
        for n, name in enumerate(columns, 1):
            params[f"c{n}"] = text_of(outcome.columns[name], self._rows.found.columns[name])
        return Query((made.change_alone if self._alone else made.change_locked)(columns), params)

    def _about(self, row: ClaimedRow) -> dict[str, Any]:
        return {
            **self._rows.about(row.holder),
            "key": row.key,
            "term": row.term,
            **numbered("k", row.key_texts),
        }
