"""Outcomes: written by compare-and-set to claimed rows, or undone; in batches, or to the one row that a transaction has locked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trueup.store.rows.compose.columns import AND, COMMA, SQL, Composable
from trueup.store.rows.compose.pieces import PLAINLY, Assignment, Pieces, set_to
from trueup.store.rows.tables import named

ARRAYS: Mapping[str, str] = {
    "term": "bigint[]",
    "rest_for": "float8[]",
    "delay": "float8[]",
    "attempt": "int[]",
    "ongoing": "boolean[]",
    "started": "boolean[]",
}


class Settling(Pieces):
    def change(self, columns: tuple[str, ...]) -> bytes:
        """For outcomes that set these columns."""
        assignments = self._changes(columns, lambda name: SQL(f"h.{name}"))
        lock = self.lock_for(name for name, _ in assignments)
        assignments = assignments or self._nothing
        names = [
            "state",
            "seen_state",
            "seen",
            "rest_for",
            "attempt",
            "error",
            "reason",
            *(f"c{n}" for n in range(1, len(columns) + 1)),
        ]
        kept = self.unless_kept(SQL("h.seen_state"), SQL("h.state"))
        return self._settle("rows/change", names, lock=lock, assignments=set_to(assignments), kept=kept)

    def checkpoint(self, columns: tuple[str, ...]) -> bytes:
        """For these columns of a row that stays claimed."""
        version = self.found.spec.version
        assignments = [(name, self.cast(SQL(f"h.c{n}"), name)) for n, name in enumerate(columns, 1)]
        if version is not None and version not in columns:
            assignments.append((version, self._next_version))
        names = ["seen_state", "seen", *(f"c{n}" for n in range(1, len(columns) + 1))]
        lock = self.lock_for(name for name, _ in assignments)
        return self._settle(
            "rows/checkpoint", names, lock=lock, assignments=set_to(assignments), seen=self.seen, plainly=PLAINLY
        )

    def remove(self) -> bytes:
        return self._settle("rows/remove", ["seen_state", "seen"], lock=SQL("update"))

    def put_back(self) -> bytes:
        """Settle without writing an outcome: what the claim wrote is undone."""
        spec, claimed_as = self.found.spec, self.selection.claimed_as
        assignments: list[Assignment] = []
        as_left: list[Composable] = []
        if claimed_as is not None:
            assert spec.state is not None
            assignments.append((spec.state, self.cast(SQL("h.was_state"), spec.state)))
            if spec.changed_at is not None:
                assignments.append((spec.changed_at, self.cast(SQL("h.was_changed_at"), spec.changed_at)))
            if spec.version is not None:
                assignments.append((spec.version, self._next_version))
            as_left.append(self.as_seen("h"))
        elif spec.lease_columns is not None:
            as_left.append(self.owned("h"))
        assignments += self._lease_cleared
        names = [
            "seen_state",
            "seen",
            "was_state",
            "was_changed_at",
            "state",
            "delay",
            "attempt",
            "error",
            "reason",
            "proposed",
            "ongoing",
        ]
        return self._settle(
            "rows/put_back",
            names,
            lock=self.lock_for(name for name, _ in assignments),
            assignments=set_to(assignments),
            is_left=AND.join(as_left),
        )

    def renew_both(self) -> bytes:
        lease = self.found.spec.lease_columns
        assert lease is not None
        return self._settle(
            "rows/renew_both",
            ["started"],
            lock=self.lock_for([lease[1]]),
            until=named(lease[1]),
            owned=self.owned("h"),
            seen=self.seen,
            plainly=PLAINLY,
            skip=True,
        )

    def mark(self) -> bytes:
        """Mark rows that were claimed without."""
        marks = self.marks_of("h.term")
        return self._settle(
            "rows/mark",
            [],
            lock=self.lock_for(name for name, _ in marks),
            as_left=self.free,
            marks=set_to(marks),
            kept=self.unless_unmarked,
            seen=self.seen,
            columns=self.asked_for,
            given=COMMA.join(self.asked_from("c")),
            nothing=COMMA.join(SQL("null") for _ in self.columns),
            plainly=PLAINLY,
        )

    def _settle(
        self,
        name: str,
        names: Sequence[str],
        *,
        lock: Composable,
        skip: bool = False,
        as_left: Composable | None = None,
        **more: Composable,
    ) -> bytes:
        every = ["key", "term", *(f"k{n}" for n in range(1, len(self.keys) + 1)), *names]
        arrays = COMMA.join(SQL(f"%({each})s::{ARRAYS.get(each, 'text[]')}") for each in every)
        compared = "seen" in names
        held = self._fragment(
            "rows/_held",
            t_is_m=self.key_from_texts("m"),
            lock=lock,
            skip=SQL(" skip locked" if skip else ""),
            as_seen_m=as_left or (self.as_seen("m") if compared else SQL("true")),
            chosen=self.chosen if compared else SQL("true"),
        )
        return self._compose(
            name,
            arrays=arrays,
            names=SQL(", ".join(every)),
            held=held,
            verdict=self._fragment("rows/_verdict", t_is_h=self.key_from_texts("h")),
            t_is_h=self.key_from_texts("h"),
            as_seen=self.as_seen("h") if compared else SQL("true"),
            cleared=self._cleared(),
            **more,
        )

    def _cleared(self) -> Composable:
        """After a conflict the user's own lease columns are ours to clear, nothing else is."""
        if self.found.spec.lease_columns is None:
            return SQL("")
        return self._fragment(
            "rows/_cleared",
            cleared=set_to(self._lease_cleared),
            t_is_h=self.key_from_texts("h"),
            owned=self.owned("h"),
        )

    def forget(self) -> bytes:
        return self._compose(
            "rows/forget",
            t_is_r=self.key_from_known("r.whole_key"),
            chosen=self.chosen,
            in_state=AND.join([self.in_states(due=False, claimed=True), *self.where]),
        )

    def lock(self) -> bytes:
        columns = COMMA.join(self.column(name) for name in self.columns)
        return self._compose(
            "rows/lock", t_is_p=self.key_from_texts("%"), chosen=self.chosen, seen=self.seen, columns=columns
        )

    def locked_out(self) -> bytes:
        return self._compose("rows/locked_out", t_is_p=self.key_from_texts("%"), chosen=self.chosen)

    def change_locked(self, columns: tuple[str, ...]) -> bytes:
        """As `change`, for one row that is locked."""
        kept = self.unless_kept(SQL("h.seen_state"), SQL("%(state)s::text"))
        return self._change_one("rows/change_locked", columns, as_seen=self.as_seen("h"), kept=kept)

    def change_alone(self, columns: tuple[str, ...]) -> bytes:
        kept = self.unless_kept(SQL("%(seen_state)s::text"), SQL("%(state)s::text"), after=" returning ")
        return self._change_one("rows/change_alone", columns, kept=kept)

    def remove_locked(self) -> bytes:
        return self._compose("rows/remove_locked", t_is_p=self.key_from_texts("%"), as_seen=self.as_seen("h"))

    def remove_alone(self) -> bytes:
        return self._compose("rows/remove_alone", t_is_p=self.key_from_texts("%"))

    def _change_one(self, name: str, columns: tuple[str, ...], **more: Composable) -> bytes:
        assignments = self._changes(columns, lambda name: SQL(f"%({name})s::text"))
        values = set_to(assignments or self._nothing)
        return self._compose(name, t_is_p=self.key_from_texts("%"), assignments=values, **more)

    @property
    def _nothing(self) -> list[Assignment]:
        """An update that changes nothing: of a column that may be written, and that nothing refers to if there is one."""
        free = [name for name, column in self.found.columns.items() if column.writable and not column.generated]
        plain = [name for name in free if name not in self.keys]
        name = next(iter([*plain, *free, *self.keys]))
        return [(name, self.column(name))]

    def _changes(self, columns: Sequence[str], value: Callable[[str], Composable]) -> list[Assignment]:
        """What an outcome with these columns writes. `value` says where its parts come from: state, c1, c2, …"""
        spec = self.found.spec
        assignments: list[Assignment] = []
        if spec.state is not None and spec.state not in columns:
            assignments.append((spec.state, self.cast(value("state"), spec.state)))
        assignments += [(name, self.cast(value(f"c{n}"), name)) for n, name in enumerate(columns, 1)]
        return [*assignments, *self._touched(columns), *self._lease_cleared]
