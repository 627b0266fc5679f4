"""What all statements over a user's table are made of: which rows are chosen, when they became due, and what a claim writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from psycopg import sql

from trueup.reconcile.outcome import Now
from trueup.reconcile.selection import Selection
from trueup.store.db.connect import LOCK_SHARE
from trueup.store.db.load import NOW, Statements, source
from trueup.store.db.texts import text_of
from trueup.store.rows.compose.columns import AND, COMMA, SHORT_TYPES, SQL, Columns, Composable, escaped
from trueup.store.rows.kept import KEPT
from trueup.store.rows.tables import Found, named

Assignment = tuple[str, Composable]  # a column and its new value

# A trigger of a row may have set for its session how values become texts. In a statement that has written to all rows, this is
# evaluated before the first of them is returned.
PLAINLY = SQL(
    "pg_catalog.set_config('datestyle', 'ISO', false), pg_catalog.set_config('intervalstyle', 'postgres', true),"
    " pg_catalog.set_config('extra_float_digits', '1', true)"
)

# Milliseconds. A statement over many rows has locked some of the user's when it waits for another: those who want them wait as long.
# Longer than `deadlock_timeout`, which is a second unless it is set: of two statements in a deadlock the server then ends one, and
# the other goes on. Not less than work.writing.SLOW, or the wait would be taken for the error of a trigger.
MAX_LOCK_WAIT = 1_500

# Types whose values are never large.
SMALL_TYPES = SHORT_TYPES | {
    *("numeric", "interval", "money", "name", '"char"', "time with time zone", "macaddr8", "cidr", "pg_lsn"),
}
SMALL = 1_000  # characters
# Types whose size is known without reading a value that is stored apart. Of others the compressed size is.
MEASURED_TYPES = frozenset({"text", "character varying", "bytea"})


@dataclass(frozen=True)
class Pieces(Columns):
    """Of one selection over one table, for a reconciler that wants these columns."""

    statements: Statements
    found: Found
    selection: Selection
    columns: tuple[str, ...]
    nulls_are_stale: bool = True
    marks: bool = True  # whether claims may write to the user's row
    pause_by: str | None = None  # a column: rows with certain values of it are not claimed
    # Whether `where=` raises for some rows, so that it is evaluated only for those not known to do so.
    guarded: bool = False

    @property
    def marks_rows(self) -> bool:
        """Whether a claim writes to the user's row."""
        return self.marks and (self.selection.claimed_as is not None or self.found.spec.lease_columns is not None)

    @property
    def asked_for(self) -> Composable:
        """The columns that are wanted of a row, under names that nothing else has."""
        return COMMA.join(
            SQL("{} as {}").format(self.column(name), SQL(f"trueup_c{n}")) for n, name in enumerate(self.columns, 1)
        )

    @cached_property
    def weight(self) -> Composable | None:
        """About how many bytes of a row are wanted, in columns that may be large; None when there are none."""
        sizes = [
            SQL("coalesce({}({}), 0)::bigint").format(
                SQL("pg_catalog.octet_length" if column.type in MEASURED_TYPES else "pg_catalog.pg_column_size"),
                self.column(name),
            )
            for name in self.columns
            if (column := self.found.columns[name]).type not in SMALL_TYPES
            and column.category != "enum"
            and name not in (self.found.spec.state, *self.keys)
            and (column.length is None or column.length > SMALL)
        ]
        return SQL(" + ").join(sizes) if sizes else None

    def asked_from(self, cte: str) -> list[Composable]:
        return [SQL(f"{cte}.trueup_c{n}") for n in range(1, len(self.columns) + 1)]

    def state_is(self, *states: str) -> Composable:
        column = self.found.spec.state
        assert column is not None
        values = [self.cast(quoted(state), column) for state in states]
        if len(values) == 1:  # one value, so that an index made for this state alone serves
            return self.compared(column, "=", values[0])
        return self.compared(column, "=", SQL("any (array[{}])").format(COMMA.join(values)))

    @cached_property
    def due(self) -> Composable | None:
        """Whether its time has come, apart from its state."""
        return self.due_by(NOW)

    def due_by(self, moment: Composable) -> Composable | None:
        selection = self.selection
        if selection.due_at is not None:
            return self.compared(selection.due_at, "<=", self.moment(selection.due_at, moment))
        if selection.stale_for is not None:
            column = self.found.spec.changed_at
            assert column is not None
            if not self.nulls_are_stale or self.found.columns[column].not_null:
                return self.old_by(moment)
            return SQL("({} or {} is null)").format(self.old_by(moment), self.column(column))
        return None

    def old_by(self, moment: Composable) -> Composable:
        """Whether it has not changed for long enough; not, if it is not known when it did."""
        column = self.found.spec.changed_at
        assert column is not None
        return self.compared(column, "<", SQL("{} - {}").format(self.moment(column, moment), self.stale_for))

    @property
    def stale_for(self) -> Composable:
        assert self.selection.stale_for is not None
        return SQL("interval {}").format(quoted(f"{self.selection.stale_for.total_seconds()} seconds"))

    @cached_property
    def became_due(self) -> Composable:
        """When the row became due or stale, as a timestamptz."""
        selection = self.selection
        if selection.due_at is not None:
            return self.instant(selection.due_at)
        if selection.stale_for is not None:
            assert self.found.spec.changed_at is not None
            return SQL("({} + {})").format(self.instant(self.found.spec.changed_at), self.stale_for)
        return SQL("null::timestamptz")

    @property
    def where(self) -> list[Composable]:
        where = self.found.spec.where
        if where is None:
            return []
        # It may end with a comment, which must not swallow the bracket.
        plain = SQL("({}\n)").format(SQL(escaped(where)))
        if not self.guarded:
            return [plain]
        # A `case`, because PostgreSQL promises no order for the parts of an `and`.
        here = self.in_states(due=True, claimed=True)
        return [self._fragment("rows/_guarded", here=here, t_key=self.key_text, where=plain)]

    @property
    def unleased(self) -> list[Composable]:
        lease = self.found.spec.lease_columns
        if lease is None:
            return []
        return [SQL("({} is null or {})").format(self.column(lease[1]), self.compared(lease[1], "<=", NOW))]

    def in_states(self, *, due: bool, claimed: bool) -> Composable:
        """Of the selection's states, with or without its time having come; or in the state that a claim gives."""
        parts = [self.state_is(*self.selection.states)] if self.selection.states else []
        if due and self.due is not None:
            parts.append(self.due)
        plain = AND.join(parts) if parts else SQL("true")
        if claimed and self.selection.claimed_as is not None:
            return SQL("({} or {})").format(plain, self.state_is(self.selection.claimed_as))
        return SQL("({})").format(plain)

    @cached_property
    def chosen(self) -> Composable:
        return AND.join([self.in_states(due=True, claimed=True), *self.where])

    @cached_property
    def free(self) -> Composable:
        return AND.join([self.chosen, *self.unleased])

    @cached_property
    def seen(self) -> Composable:
        """The columns that show whether another transaction has written to the row since; as text, they are compared with."""
        spec = self.found.spec
        column = spec.version or spec.changed_at
        if column is not None:
            return self.column(column)
        # Renewing a lease in the user's row gives it a new xmin.
        return SQL("null::text") if spec.lease_columns is not None else SQL("t.xmin")

    def unless_kept(
        self, seen: Composable, wanted: Composable, *, exactly: bool = False, after: str = ", "
    ) -> Composable:
        """For a RETURNING list: fails when a trigger has given the row back the state that it had (`exactly`: any state but `wanted`)."""
        state = self.found.spec.state
        if state is None or not self.found.triggered:  # returning rows costs something
            return SQL("")
        seen, wanted = self.cast(seen, state), self.cast(wanted, state)
        kept = SQL("({}) is not true").format(self.compared(state, "=", wanted))
        if not exactly:
            differ = SQL("({} {} {}) is not true").format(wanted, self.operator("=", state), seen)
            kept = AND.join([self.compared(state, "=", seen), differ])
        return SQL("{}(case when {} then {}::text else '1' end)::int").format(SQL(after), kept, quoted(KEPT))

    @property
    def unless_unmarked(self) -> Composable:
        """The same for the working state that a claim writes."""
        working = self.selection.claimed_as
        return SQL("") if working is None else self.unless_kept(SQL("null"), quoted(working), exactly=True)

    def as_seen(self, cte: str) -> Composable:
        """The row of `t` is as the claim left it."""
        spec = self.found.spec
        parts: list[Composable] = []
        if spec.state is not None:
            parts.append(self.compared(spec.state, "=", self.cast(SQL(f"{cte}.seen_state"), spec.state)))
        column = spec.version or spec.changed_at
        if column is not None:
            same = self.compared(column, "=", self.cast(SQL(f"{cte}.seen"), column))
            parts.append(SQL("({} or {} is null and {} is null)").format(same, self.column(column), SQL(f"{cte}.seen")))
        elif spec.lease_columns is None:
            parts.append(SQL("t.xmin::text = {}").format(SQL(f"{cte}.seen")))
        if spec.lease_columns is not None:
            parts.append(self.owned(cte))
        return AND.join(parts)

    def owned(self, cte: str) -> Composable:
        """The lease in the user's own columns is ours, and has not passed."""
        lease = self.found.spec.lease_columns
        assert lease is not None
        owner, until = lease
        return AND.join([self.compared(owner, "=", owner_text(f"{cte}.term")), self.compared(until, ">", NOW)])

    def _without_value(self, timed: bool, moment: Composable = NOW) -> list[Composable] | None:
        """Conditions of rows without a value in the order's column; None when there are none, or they are never chosen."""
        order, spec = self.selection.order.column, self.found.spec
        if order is None or self.found.columns[order].not_null:
            return None
        parts: list[Composable] = [SQL("{} is null").format(self.column(order))]
        if not timed:
            return parts
        if order == self.selection.due_at:
            return None
        if self.selection.stale_for is not None and order == spec.changed_at:
            return parts if self.nulls_are_stale else None
        due = self.due_by(moment)
        return parts if due is None else [*parts, due]

    @property
    def _typed_names(self) -> list[str]:
        return [f"trueup_t{n}" for n in range(1, len(self.keys) + 1)]

    def lock_for(self, columns: Iterable[str]) -> Composable:
        """The lock that writing these columns needs, so that the write itself never waits.

        A transaction that inserts a row with a foreign key to this one locks its key. That conflicts only with a change to a
        column that a foreign key can refer to, or that decides the row's partition; those are in a unique index, too.
        """
        referable = {
            column for unique in self.found.uniques if unique.flaw != "is partial" for column in unique.columns
        }
        return SQL("no key update" if referable.isdisjoint(columns) else "update")

    def _touched(self, columns: Sequence[str]) -> list[Assignment]:
        """The time of change and the version, unless the outcome sets them itself."""
        spec = self.found.spec
        touched: list[Assignment] = []
        if spec.changed_at is not None and spec.changed_at not in columns:
            touched.append((spec.changed_at, self.moment(spec.changed_at)))
        if spec.version is not None and spec.version not in columns:
            touched.append((spec.version, self._next_version))
        return touched

    def marks_of(self, term: str) -> list[Assignment]:
        """What a claim, whose term is in this column, writes to the user's row."""
        if not self.marks_rows:
            return []
        spec, marks = self.found.spec, []
        if self.selection.claimed_as is not None:
            assert spec.state is not None
            marks.append((spec.state, self.cast(quoted(self.selection.claimed_as), spec.state)))
            marks.extend((name, self._claimed_value(name, value)) for name, value in self.selection.claimed_set)
            marks.extend(self._touched(()))
        if spec.lease_columns is not None:
            owner, until = spec.lease_columns
            marks.append((owner, owner_text(term)))
            marks.append((until, SQL("{} + pg_catalog.make_interval(secs => %(lease_for)s::float8)").format(NOW)))
        return marks

    def _claimed_value(self, name: str, value: Any) -> Composable:
        if isinstance(value, Now):
            return self.moment(name)
        text = text_of(value, self.found.columns[name])
        return SQL("null") if text is None else self.cast(quoted(text), name)

    @property
    def _next_version(self) -> Composable:
        version = self.found.spec.version
        assert version is not None
        return SQL("coalesce({}, 0) + 1").format(self.column(version))

    @property
    def _lease_cleared(self) -> list[Assignment]:
        return [(name, SQL("null")) for name in self.found.spec.lease_columns or ()]

    def _ordered(self, *, nulls_first: bool = False) -> Composable:
        """As a sweep walks. Where rows without a value are chosen at all, they come first, which no plain index gives."""
        order = self.selection.order
        direction = SQL(" desc" if order.descending else "")
        columns = [*([order.column] if order.column is not None else []), *self.keys]
        parts = [SQL("{}{}").format(self.column(name), direction) for name in columns]
        if nulls_first and not order.descending and self._without_value(timed=True) is not None:
            parts[0] = SQL("{} nulls first").format(parts[0])
        return COMMA.join(parts)

    def _after(self, value: Sequence[Composable], keys: Sequence[Composable]) -> Composable:
        """Behind where the sweep has come to."""
        order = self.selection.order
        positions = [self.key_of_text(SQL(f"%(after_{n})s::text"), key) for n, key in enumerate(self.keys, 1)]
        if value:
            assert order.column is not None
            positions.insert(0, self.cast(SQL("%(after_order)s::text"), order.column))
        columns = [*([order.column] if value and order.column is not None else []), *self.keys]
        operator = self.operator("<" if order.descending else ">", *columns)
        return SQL("({}) {} ({})").format(COMMA.join([*value, *keys]), operator, COMMA.join(positions))

    @property
    def _typed_keys(self) -> Composable:
        return COMMA.join(
            SQL("{} as {}").format(self.column(key), SQL(f"trueup_t{n}")) for n, key in enumerate(self.keys, 1)
        )

    @property
    def _state_text(self) -> Composable:
        state = self.found.spec.state
        return SQL("null::text") if state is None else SQL("{}::text").format(self.column(state))

    def evaluates(self, free: Composable, read: Composable) -> bytes:
        """Whether rows of given keys are free, after reading all this of them."""
        return self._compose("rows/evaluate", free=free, read=read, t_is_m=self.key_from_known("m.whole_key"))

    def readable(self) -> bytes:
        """Reads the keys of records as values of the key's columns."""
        return self._compose("rows/readable", values=COMMA.join(self._values_of("m.whole_key")))

    def _fragment(self, name: str, **names: Composable) -> Composable:
        place = sql.Identifier(self.statements.schema)
        return SQL(source(name).strip()).format(schema=place, now=NOW, table=self.table, **names)

    def _compose(self, name: str, **names: Composable) -> bytes:
        return self.statements.compose(name, table=self.table, **names)


def set_to(assignments: Iterable[Assignment]) -> Composable:
    return COMMA.join(SQL("{} = {}").format(named(column), value) for column, value in assignments)


def owner_text(term: str) -> Composable:
    """What is written into the owner's column: who, and the term, so that two claims by one process are two owners."""
    return SQL("(%(owner)s::text || '/' || {}::text)").format(SQL(term))


def quoted(text: str) -> Composable:
    """A text in single quotes."""
    return SQL(escaped(sql.Literal(text).as_string(None)))


def steering(statements: Statements, timeout: timedelta) -> bytes:
    """What goes before statements over a user's table; of those that take longer than `timeout` none may go on."""
    milliseconds = timeout.total_seconds() * 1000
    limits = {"milliseconds": milliseconds, "lock": min(milliseconds * LOCK_SHARE, MAX_LOCK_WAIT)}
    return statements.compose("rows/steer", **{name: quoted(str(round(each))) for name, each in limits.items()})
