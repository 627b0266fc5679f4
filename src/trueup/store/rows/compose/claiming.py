"""Claims: rows in the order asked for, one limited walk along an index per state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trueup.store.db.load import NOW
from trueup.store.rows.compose.columns import AND, COMMA, SQL, Composable
from trueup.store.rows.compose.pieces import PLAINLY, Assignment, Pieces, quoted, set_to

# Where a sweep has come to: nowhere yet, among rows without a value, or with one.
Place = Literal["start", "without", "with"]

# What has become due since a sweep began is left to the next one: so none is looked at twice in one.
CUT_OFF = SQL("coalesce(%(cut_off)s::timestamptz, {})").format(NOW)
UNION = SQL("\n     union all ")
# Of a claimed row, in the order that `Rows` reads.
TOLD = SQL(
    "c.trueup_key, c.trueup_term, c.trueup_occasion, c.trueup_attempt, c.trueup_spent, c.trueup_outlived, c.trueup_claimed_at,"
    " c.trueup_was_state, c.trueup_was_changed_at"
)
ALL_MARKED = SQL(
    "1 / ((select pg_catalog.count(*) from moved) >= (select pg_catalog.count(*) from mine))::int as ok, {}"
).format(PLAINLY)
# Of rows that are claimed together, and one more row. The driver needs several times as much while it reads them.
MAX_CLAIMED_BYTES = 64 * 1024 * 1024
CHANGED_AT: Composable = SQL("k.trueup_changed_at")


class Claiming(Pieces):
    @property
    def about(self) -> Composable:
        """What a claim needs to know of a row apart from its columns."""
        spec = self.found.spec
        state = SQL("null") if spec.state is None else self.column(spec.state)
        changed_at = SQL("null") if spec.changed_at is None else self.column(spec.changed_at)
        typed = COMMA.join(
            SQL("{} as {}").format(self.column(key), SQL(f"trueup_t{n}")) for n, key in enumerate(self.keys, 1)
        )
        return COMMA.join(
            [
                SQL("{}::text as trueup_state, {}::text as trueup_changed_at").format(state, changed_at),
                SQL("{} as trueup_seen, {} as trueup_due").format(self.seen, self.became_due),
                SQL("{} as trueup_long_key").format(self.long_key),
                typed,
                self.key_values,
            ]
        )

    @property
    def handed(self) -> Composable:
        """What comes back of a claimed row: what is known about it, then the row."""
        texts = [self.text_of_key(SQL(f"c.trueup_k{n}"), key) for n, key in enumerate(self.keys, 1)]
        return COMMA.join([TOLD, SQL("c.trueup_seen::text, c.trueup_due"), *texts, *self.asked_from("c")])

    def _of_row(self, cte: str) -> list[Composable]:
        keys = [SQL(f"{cte}.trueup_k{n}") for n in range(1, len(self.keys) + 1)]
        return [SQL(f"{cte}.trueup_seen, {cte}.trueup_due"), *keys, *self.asked_from(cte)]

    def claim_fresh(self, place: Place) -> bytes:
        return self._claim(
            "rows/claim_fresh", branches=self.branches(place), sorted=self.sorted, place=self.place, passes=self._passes
        )

    @property
    def _passes(self) -> Composable:
        """What the walk along the table has not checked yet of a row that it has seen."""
        if not self.guarded or not self.where:
            return SQL("")
        where, is_seen = self.where[0], self.same_key("s")
        return SQL("\n     and (select {} from {} as t where {} limit 1)").format(where, self.table, is_seen)

    def candidates(self, place: Place) -> bytes:
        """Rows that a guarded claim walks past."""
        return self._compose(
            "rows/candidates",
            branches=self.branches(place),
            sorted=self.sorted,
            place=self.place,
            long_key=self.long_key,
            state=self._state_text,
            t_is_place=self.same_key("place"),
        )

    def evaluate(self) -> bytes:
        return self.evaluates(self.free, COMMA.join([self.about, self.asked_for]))

    def probe(self, place: Place = "start") -> bytes:
        """Looks at the first rows, and at the first behind a place."""
        branches = [self.branches("start"), *([] if place == "start" else [self.branches(place)])]
        return self._compose("rows/probe", branches=UNION.join(branches), passes=self._passes)

    def claim_again(self) -> bytes:
        working = self.selection.claimed_as
        unclaimed: Composable = SQL("")
        if working is not None:  # of another reconciler on this table, one that was renamed, say, and that still has it
            unclaimed = SQL(" {}").format(self._fragment("rows/_unclaimed", working=quoted(working)))
        again = self._fragment("rows/_again")
        t_is_r = self.key_from_known("r.trueup_whole_key")
        return self._claim("rows/claim_again", t_is_r=t_is_r, again=again, unclaimed=unclaimed)

    def _claim(self, name: str, **more: Composable) -> bytes:
        claimed_as = self.selection.claimed_as
        state: Composable = SQL("k.trueup_state")
        again_state, again_changed_at = state, CHANGED_AT
        left_behind: Composable = SQL("false")
        if claimed_as is not None:
            # Found in its working state: the one it came from is known, or else the first is taken for it.
            working, first = quoted(claimed_as), quoted(self.selection.states[0])
            left_behind = SQL("(k.trueup_state = {})").format(working)
            state = SQL("case when k.trueup_state = {} then {} else k.trueup_state end").format(working, first)
            again_state = SQL(
                "case when k.trueup_state = {} then coalesce(k.trueup_was_state, {}) else k.trueup_state end"
            ).format(working, first)
            again_changed_at = SQL(
                "case when k.trueup_state = {} then coalesce(k.trueup_was_changed_at, k.trueup_changed_at)"
                " else k.trueup_changed_at end"
            ).format(working)
        return self._compose(
            name,
            about=self.about,
            columns=self.asked_for,
            t_is_f=self.same_key("f"),
            free=AND.join([self.free, *self.unpaused]),
            lock=self.lock_for(name for name, _ in self.marked),
            long_key=SQL("k.trueup_long_key"),
            left_behind=left_behind,
            fresh_state=state,
            again_state=again_state,
            again_changed_at=again_changed_at,
            moved=self.moved,
            passed=COMMA.join([*(SQL(f"k.{name}") for name in self._typed_names), *self._of_row("k")]),
            given=SQL("moved" if self.marks_rows else "mine"),
            all_marked=ALL_MARKED if self.marks_rows else SQL("1 as ok"),
            handed=self.handed,
            **self._bounds,
            **more,
        )

    @property
    def _bounds(self) -> dict[str, Composable]:
        """What keeps a claim from returning more bytes than a worker has room for. Nothing, if all that it reads is small."""
        if self.weight is None:
            return {"locked": SQL("taken"), "weighs": SQL(""), "bounded": SQL(""), "cut": SQL("false")}
        return {
            "locked": SQL("weighed"),
            "weighs": SQL(", {} as trueup_bytes").format(self.weight),
            "bounded": SQL("{}, ").format(self._fragment("rows/_bounded", most_bytes=SQL(str(MAX_CLAIMED_BYTES)))),
            "cut": SQL("(select pg_catalog.count(*) from taken) < (select pg_catalog.count(*) from weighed)"),
        }

    @property
    def unpaused(self) -> list[Composable]:
        """Rows whose breaker is open are not claimed."""
        if self.pause_by is None:
            return []
        return [SQL("({}::text = any(%(paused)s::text[])) is not true").format(self.column(self.pause_by))]

    @property
    def marked(self) -> list[Assignment]:
        """What a claim writes to the user's row."""
        return self.marks_of("c.trueup_term")

    @property
    def moved(self) -> Composable:
        if not self.marked:
            return SQL("")
        return self._fragment(
            "rows/_moved",
            marks=set_to(self.marked),
            kept=self.unless_unmarked,
            told=TOLD,
            t_is_c=self.same_key("c"),
            seen=self.seen,
            keys=self.key_values,
            columns=self.asked_for,
        )

    def branches(self, place: Place) -> Composable:
        """One limited select per state, so that an index over (state, order, key) gives each in order.

        Those without a value in the order's column are selects of their own: no plain index has them first.
        """
        selection = self.selection
        groups: list[tuple[list[Composable], bool]] = [([self.state_is(state)], True) for state in selection.states]
        groups = groups or [([], True)]
        if selection.claimed_as is not None:  # left behind by a process that died: always due
            groups.append(([self.state_is(selection.claimed_as)], False))
        parts: list[Composable] = []
        for conditions, timed in groups:
            without = self._without_value(timed, CUT_OFF)
            if without is not None and place != "with":
                parts.append(self._branch([*conditions, *without], place, with_value=False))
            parts.append(self._branch([*conditions, *self._with_value(timed)], place, with_value=True))
        return UNION.join(parts)

    def _with_value(self, timed: bool) -> list[Composable]:
        """Conditions of rows that have a value in the order's column."""
        order, spec = self.selection.order.column, self.found.spec
        parts: list[Composable] = []
        if order is not None and not self.found.columns[order].not_null:
            parts.append(SQL("{} is not null").format(self.column(order)))
        if timed and self.selection.stale_for is not None and order == spec.changed_at:
            parts.append(self.old_by(CUT_OFF))
        elif timed and (due := self.due_by(CUT_OFF)) is not None:
            parts.append(due)
        return parts

    def _branch(self, conditions: Iterable[Composable], place: Place, *, with_value: bool) -> Composable:
        order, keys = self.selection.order, [self.column(key) for key in self.keys]
        value = [self.column(order.column)] if order.column is not None and with_value else []
        where = [] if self.guarded else self.where  # see `_passes`
        conditions = [*conditions, *where, *self.unleased, *self.unpaused]
        if place == ("with" if with_value else "without"):
            conditions.append(self._after(value, keys))
        typed = [SQL("{} as {}").format(key, SQL(f"trueup_t{n}")) for n, key in enumerate(keys, 1)]
        if order.column is not None:
            typed.append(SQL("{} as trueup_order").format(self.column(order.column)))
        direction = SQL(" desc" if order.descending else "")
        return SQL(
            "(select {null} as trueup_null, {key} as trueup_key, {typed} from {table} as t\n"
            "        where {conditions} order by {order} limit %(window)s)"
        ).format(
            null=SQL("false" if with_value else "true"),
            key=self.key_text,
            typed=COMMA.join(typed),
            table=self.table,
            conditions=AND.join(conditions) if conditions else SQL("true"),
            order=COMMA.join(SQL("{}{}").format(part, direction) for part in (*value, *keys)),
        )

    @property
    def sorted(self) -> Composable:
        order = self.selection.order
        names = [*(["trueup_order"] if order.column is not None else []), *self._typed_names]
        direction = " desc" if order.descending else ""
        return SQL(", ".join(["trueup_null desc", *(f"{name}{direction}" for name in names)]))

    @property
    def place(self) -> Composable:
        order = SQL("null::text" if self.selection.order.column is None else "place.trueup_order::text")
        names = zip(self._typed_names, self.keys, strict=True)
        return COMMA.join([order, *(self.text_of_key(SQL(f"place.{name}"), key) for name, key in names)])
