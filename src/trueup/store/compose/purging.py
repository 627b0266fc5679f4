"""Moves and deletions by the database alone."""

from __future__ import annotations

from collections.abc import Mapping

from trueup.store.compose.pieces import AND, SQL, Composable, Pieces, quoted, set_to
from trueup.store.load import NOW

# How late rows that became due at `due` are, in seconds. There is no time since -infinity, and one such row must not stop all others.
LATE = SQL("pg_catalog.date_part('epoch', {now} - greatest({due}, timestamptz '0001-01-01 00:00+00'))")
OLDEST, NEWEST = (LATE.format(now=NOW, due=SQL(due)) for due in ("pg_catalog.min(due)", "pg_catalog.max(due)"))
LATENESS: Mapping[str, Composable] = {
    "late": LATE.format(now=NOW, due=SQL("due")),
    "late_of_min": OLDEST,
    "late_of_max": NEWEST,
    # Between the same bounds, and so near to one another that what lies between them need not be looked at. The bounds come
    # negated, last first: what is exactly at one then counts as below it.
    "alike": SQL(
        "({oldest} - {newest} <= {newest} * %(alike)s::float8 and"
        " pg_catalog.width_bucket(-{oldest}, %(bounds)s::float8[]) = pg_catalog.width_bucket(-{newest}, %(bounds)s::float8[]))"
    ).format(oldest=OLDEST, newest=NEWEST),
}


class Purging(Pieces):
    def delete(self, state: str | None) -> bytes:
        """Delete the rows of one state."""
        lock = SQL("update")
        if self.found.partitioned:
            oldest = self._oldest(state, self._typed_keys, lock)
            names = {"oldest": oldest, "is_picked": self.same_key("p"), "due": self.became_due}
            return self._compose("rows/delete_across", **names, **LATENESS)
        return self._compose("rows/delete", oldest=self._oldest(state, SQL("t.ctid"), lock), tell=self._tell())

    def move(self, state: str | None, to: str, columns: tuple[str, ...]) -> bytes:
        """Move the rows of one state on."""
        spec, keys = self.found.spec, self._typed_keys
        assert spec.state is not None
        assignments = [(spec.state, self.cast(quoted(to), spec.state))]
        assignments += [(name, self.cast(SQL(f"%(c{n})s::text"), name)) for n, name in enumerate(columns, 1)]
        assignments += self._touched(columns)
        lock = self.lock_for(name for name, _ in assignments)
        if self.found.partitioned:
            what = SQL("{}, {} as due").format(keys, self.became_due)
            return self._compose(
                "rows/move_across",
                oldest=self._oldest(state, what, lock),
                keys=keys,
                same_keys=AND.join(
                    SQL("p.{} {} h.{}").format(SQL(name), self.operator("=", key), SQL(name))
                    for name, key in zip(self._typed_names, self.keys, strict=True)
                ),
                is_picked=self.same_key("p"),
                assignments=set_to(assignments),
                **LATENESS,
            )
        oldest = self._oldest(state, SQL("t.ctid"), lock)
        return self._compose("rows/move", oldest=oldest, tell=self._tell(), assignments=set_to(assignments))

    def _tell(self) -> Composable:
        """Notes how late the picked rows were."""
        selection = self.selection
        by_due = selection.order.column == (selection.due_at or self.found.spec.changed_at)
        # In the order of their being due, the first and the last say what lies between them.
        ends = (
            "p.slots[1:1] operator(pg_catalog.||) p.slots[greatest(2, pg_catalog.cardinality(p.slots)):]"
            if by_due
            else "p.slots"
        )
        return self._fragment("rows/_tell", due=self.became_due, ends=SQL(ends), **LATENESS)

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

    def share(self) -> bytes:
        return self._compose("rows/share", chosen=self.chosen)
