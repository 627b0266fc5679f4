"""Moves and deletions by the database alone."""

from __future__ import annotations

from collections.abc import Mapping

from trueup.store.compose.pieces import AND, SQL, Composable, Pieces, quoted, set_to
from trueup.store.load import NOW

# How late rows that became due at `due` are, in seconds. There is no time since -infinity, and one such row must not stop all others.
LATE = SQL("date_part('epoch', {now} - greatest({due}, timestamptz '0001-01-01 00:00+00'))")
OLDEST, NEWEST = (LATE.format(now=NOW, due=SQL(due)) for due in ("min(due)", "max(due)"))
LATENESS: Mapping[str, Composable] = {
    "late": LATE.format(now=NOW, due=SQL("due")),
    "late_of_min": OLDEST,
    "late_of_max": NEWEST,
    # Between the same bounds, and so near to one another that what lies between them need not be looked at. The bounds come
    # negated, last first: what is exactly at one then counts as below it.
    "alike": SQL(
        "({oldest} - {newest} <= {newest} * %(alike)s::float8 and"
        " width_bucket(-{oldest}, %(bounds)s::float8[]) = width_bucket(-{newest}, %(bounds)s::float8[]))"
    ).format(oldest=OLDEST, newest=NEWEST),
}


class Purging(Pieces):
    def delete(self, state: str | None) -> bytes:
        """Delete the rows of one state."""
        lock, keys = SQL("update"), self._typed_keys
        picked: Composable
        if self.found.partitioned:
            picked = SQL("picked as materialized ({}), ").format(self._oldest(state, keys, lock))
            using, is_picked = SQL(" using picked as p"), self.same_key("p")
        else:
            # The row's place is enough inside the statement that has locked the row, but only within one table.
            picked = using = SQL("")
            is_picked = SQL("t.ctid = any(array({}))").format(self._oldest(state, SQL("t.ctid"), lock))
        names = {"picked": picked, "using_picked": using, "is_picked": is_picked, "due": self.became_due}
        return self._compose("rows/delete", **names, **LATENESS)

    def move(self, state: str | None, to: str, columns: tuple[str, ...]) -> bytes:
        """Move the rows of one state on."""
        spec, one_table, keys = self.found.spec, not self.found.partitioned, self._typed_keys
        assert spec.state is not None
        assignments = [(spec.state, self.cast(quoted(to), spec.state))]
        assignments += [(name, self.cast(SQL(f"%(c{n})s::text"), name)) for n, name in enumerate(columns, 1)]
        assignments += self._touched(columns)
        what = SQL("{}{}, {} as due").format(SQL("t.ctid as slot, " if one_table else ""), keys, self.became_due)
        return self._compose(
            "rows/move",
            oldest=self._oldest(state, what, self.lock_for(name for name, _ in assignments)),
            keys=keys,
            key_names=SQL(", ".join(self._typed_names)),
            from_picked=SQL("" if one_table else " from picked as p"),
            is_picked=SQL("t.ctid = any(array(select slot from picked))") if one_table else self.same_key("p"),
            assignments=set_to(assignments),
            **LATENESS,
        )

    def _oldest(self, state: str | None, what: Composable, lock: Composable) -> Composable:
        """The oldest that may be purged, locked; those that somebody else has locked are passed over."""
        parts = [self.state_is(state)] if state is not None else []
        parts += [*([self.due] if self.due is not None else []), *self.where, *self.unleased]
        eligible = AND.join(parts) if parts else SQL("true")
        return self._fragment("rows/_oldest", what=what, eligible=eligible, ordered=self._ordered(), lock=lock)

    def purgeable(self) -> bytes:
        return self._compose("rows/purgeable", chosen=self.chosen, due=self.became_due)

    def purge_list(self) -> bytes:
        return self._compose(
            "rows/purge_list",
            t_key=self.key_text,
            state=self._state_text,
            due=self.became_due,
            free=self.free,
            ordered=self._ordered(),
        )

    def size(self) -> bytes:
        return self._compose("rows/size")
