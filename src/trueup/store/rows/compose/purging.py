"""Moves and deletions by the database alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trueup.store.db.load import NOW
from trueup.store.rows.compose.columns import AND, COMMA, SQL, Composable
from trueup.store.rows.compose.pieces import Pieces, quoted, set_to

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


Choice = Literal["all", "passing", "keyed"]


class Purging(Pieces):
    """Statements take `all` rows of a state; or, `passing` over those that were refused before, only the others; or those of given keys."""

    def delete(self, state: str | None, choice: Choice = "all") -> bytes:
        """Delete the rows of one state."""
        lock = SQL("update")
        if self.found.partitioned:
            oldest = self._oldest(state, self._typed_keys, lock, choice)
            names = {"oldest": oldest, "is_picked": self.same_key("p"), "due": self.became_due}
            return self._compose("rows/delete_across", **names, **LATENESS)
        oldest = self._oldest(state, SQL("t.ctid"), lock, choice)
        return self._compose("rows/delete", oldest=oldest, tell=self._tell(choice))

    def move(self, state: str | None, to: str, columns: tuple[str, ...], choice: Choice = "all") -> bytes:
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
                oldest=self._oldest(state, what, lock, choice),
                keys=keys,
                same_keys=AND.join(
                    SQL("p.{} {} h.{}").format(SQL(name), self.operator("=", key), SQL(name))
                    for name, key in zip(self._typed_names, self.keys, strict=True)
                ),
                is_picked=self.same_key("p"),
                assignments=set_to(assignments),
                kept=self._unless_kept(state, to, after=", "),
                **LATENESS,
            )
        oldest = self._oldest(state, SQL("t.ctid"), lock, choice)
        kept = self._unless_kept(state, to, after=" returning ")
        return self._compose(
            "rows/move", oldest=oldest, tell=self._tell(choice), assignments=set_to(assignments), kept=kept
        )

    def _unless_kept(self, state: str | None, to: str, after: str) -> Composable:
        return SQL("") if state is None else self.unless_kept(quoted(state), quoted(to), after=after)

    def evaluate(self, state: str | None) -> bytes:
        return self.evaluates(AND.join([SQL("true"), *self._eligible(state)]), SQL("{} as due").format(self.became_due))

    def picked(self, state: str | None, *, after: bool, where: bool = True) -> bytes:
        """The next rows of one state, those behind a place only if asked for; without `where` also those that it does not choose."""
        order = self.selection.order.column
        value = [] if order is None else [self.column(order)]
        eligible = [*self._eligible(state, where=where), self._not_passed_over]
        if after:
            eligible.append(self._after(value, [self.column(key) for key in self.keys]))
        return self._compose(
            "rows/picked",
            t_key=self.key_text,
            long_key=self.long_key,
            state=self._state_text,
            order=SQL("{}::text").format(value[0]) if value else SQL("null::text"),
            key_texts=self.key_texts,
            eligible=AND.join(eligible),
            ordered=self._ordered(),
        )

    def _tell(self, choice: Choice) -> Composable:
        """Notes how many rows were picked, and how late they were."""
        selection = self.selection
        by_due = choice != "keyed" and selection.order.column == (selection.due_at or self.found.spec.changed_at)
        # In the order of their being due, the first and the last say what lies between them.
        ends = (
            "p.slots[1:1] operator(pg_catalog.||) p.slots[greatest(2, pg_catalog.cardinality(p.slots)):]"
            if by_due
            else "p.slots"
        )
        return self._fragment("rows/_tell", due=self.became_due, ends=SQL(ends), **LATENESS)

    def _oldest(self, state: str | None, what: Composable, lock: Composable, choice: Choice) -> Composable:
        """The oldest that may be purged, or those of given keys, locked; those that another session has locked are skipped."""
        parts = self._eligible(state)
        if choice == "passing":
            parts.append(self._not_passed_over)
        eligible = AND.join(parts) if parts else SQL("true")
        if choice != "keyed":
            return self._fragment("rows/_oldest", what=what, eligible=eligible, ordered=self._ordered(), lock=lock)
        numbers = range(1, len(self.keys) + 1)
        return self._fragment(
            "rows/_keyed",
            given=SQL("t.*" if self.found.partitioned else "t.ctid"),
            # Not `unnest(a, b)`, which cannot be written with its schema: of one array any user's function could take its place.
            arrays=COMMA.join(SQL(f"pg_catalog.unnest(%(k{n})s::text[])") for n in numbers),
            names=SQL(", ".join(f"k{n}" for n in numbers)),
            what=what,
            eligible=eligible,
            t_is_m=self.key_from_texts("m"),
            lock=lock,
        )

    def _eligible(self, state: str | None, *, where: bool = True) -> list[Composable]:
        parts = [self.state_is(state)] if state is not None else []
        due = [self.due] if self.due is not None else []
        return [*parts, *due, *(self.where if where else []), *self.unleased]

    @property
    def _not_passed_over(self) -> Composable:
        return self._fragment("rows/_passed_over", t_key=self.key_text)

    def waiting(self) -> bytes:
        return self._compose("rows/purgeable", chosen=self.chosen, due=self.became_due)

    def listed(self) -> bytes:
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
