"""SQL over users' own tables, composed: the only place where their names become part of a statement.

Identifiers and the states named in code are quoted by psycopg; values are parameters; `where=` is the user's own code and
goes in as it is. The statements themselves are in `sql/rows/`, with names in braces for what depends on the table.

Words used there: *chosen* is a row that the reconciler is for (state, staleness or due time, `where=`); *free* one that is
also not leased in the user's own columns. `t` is always the user's table; `trueup_t1…` are its key's columns.

`pieces` has what they are made of; `claiming`, `settling` and `purging` put them together.
"""

from __future__ import annotations

from trueup.store.rows.compose.claiming import Claiming, Place
from trueup.store.rows.compose.columns import SQL
from trueup.store.rows.compose.pieces import quoted, steering
from trueup.store.rows.compose.purging import Choice, Purging
from trueup.store.rows.compose.settling import Settling

__all__ = ["SQL", "Choice", "Composer", "Place", "Purging", "quoted", "steering"]


class Composer(Claiming, Settling):
    """The statements of a reconciler."""

    def waiting(self) -> bytes:
        return self._compose("rows/waiting", free=self.free, due=self.became_due, t_key=self.key_text)

    def listed(self, values: bool) -> bytes:
        return self._compose(
            "rows/listed",
            t_key=self.key_text,
            state=self._state_text,
            due=self.became_due,
            columns=SQL(", {}").format(self.asked_for) if values else SQL(""),
            free=self.free,
            ordered=self._ordered(nulls_first=True),
        )
