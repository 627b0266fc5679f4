"""SQL over users' own tables, composed: the only place where their names become part of a statement.

Identifiers and the states named in code are quoted by psycopg; values are parameters; `where=` is the user's own code and
goes in as it is. The statements themselves are in `sql/rows/`, with names in braces for what depends on the table.

Words used there: *chosen* is a row that the reconciler is for (state, staleness or due time, `where=`); *free* one that is
also not leased in the user's own columns. `t` is always the user's table; `trueup_t1…` are its key's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from psycopg import sql

from trueup.reconcile.selection import Selection
from trueup.store.load import NOW, Statements, source
from trueup.store.tables import Found, named

Composable = sql.Composable
SQL = sql.SQL
# Where a sweep has come to: nowhere yet, among rows without a value, or with one.
Place = Literal["start", "without", "with"]
Assignment = tuple[str, Composable]  # a column and its new value

AND, OR, COMMA, UNION = SQL(" and "), SQL(" or "), SQL(", "), SQL("\n     union all ")
UTC_NOW = SQL("({} at time zone 'utc')").format(NOW)


@dataclass(frozen=True)
class Composer:
    """The statements of one selection over one table, for a reconciler that wants these columns."""

    statements: Statements
    found: Found
    selection: Selection
    columns: tuple[str, ...]
    nulls_are_stale: bool = True
    marks: bool = True  # whether claims may write to the user's row

    # -- pieces -------------------------------------------------------------------------------------------------------

    @property
    def table(self) -> Composable:
        return named(self.found.schema, self.found.name)

    @property
    def marks_rows(self) -> bool:
        """Whether a claim writes to the user's row."""
        return self.marks and (self.selection.claimed_as is not None or self.found.spec.lease_columns is not None)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.found.spec.key

    def column(self, name: str, of: str = "t") -> Composable:
        return SQL("{}.{}").format(SQL(of), named(name))

    def cast(self, expression: Composable, column: str) -> Composable:
        """To the type of a column, as `format_type` writes it."""
        return SQL("{}::{}").format(expression, SQL(_escaped(self.found.type(column))))

    def moment(self, column: str) -> Composable:
        """Now, as the type of this column has it: a timestamp without a zone is taken as UTC."""
        return UTC_NOW if self.found.columns[column].category == "timestamp" else NOW

    def instant(self, column: str) -> Composable:
        """A column as a timestamptz."""
        plain = self.column(column)
        return SQL("({} at time zone 'utc')").format(plain) if self._local(column) else plain

    def _local(self, column: str) -> bool:
        return self.found.columns[column].category == "timestamp"

    def same_key(self, typed: str) -> Composable:
        """The row of `t` is the one whose key the CTE `typed` carries in trueup_t1…"""
        return AND.join(
            SQL("{} = {}").format(self.column(key), SQL(f"{typed}.trueup_t{n}")) for n, key in enumerate(self.keys, 1)
        )

    def key_from_texts(self, texts: str) -> Composable:
        """The row of `t` is the one whose key is in k1… as text: of a CTE, or (`%`) as parameters."""
        return AND.join(
            SQL("{} = {}").format(self.column(key), self.cast(SQL(_text_of_key(texts, n)), key))
            for n, key in enumerate(self.keys, 1)
        )

    def key_from_known(self, known: str) -> Composable:
        """The row of `t` is the one whose key, as trueup's `rows` has it, is in this column."""
        if len(self.keys) == 1:
            return SQL("{} = {}").format(self.column(self.keys[0]), self._from_lasting(known, self.keys[0]))
        parts = (
            SQL("{} = {}").format(self.column(key), self._from_lasting(f"({known}::jsonb ->> {n})", key))
            for n, key in enumerate(self.keys)
        )
        return AND.join(parts)

    @cached_property
    def key_text(self) -> Composable:
        """The key of `t` as trueup's `rows` has it."""
        texts = [self._lasting(key) for key in self.keys]
        return texts[0] if len(texts) == 1 else SQL("jsonb_build_array({})::text").format(COMMA.join(texts))

    def _lasting(self, key: str) -> Composable:
        """A key as the same text in every session: TimeZone and bytea_output must not make two rows of one."""
        column, kind = self.column(key), self.found.type(key)
        if kind == "bytea":
            return SQL("encode({}, 'hex')").format(column)
        if kind == "timestamp with time zone":
            return SQL("(to_jsonb({} at time zone 'utc') #>> '{{}}')").format(column)
        return SQL("{}::text").format(column)

    def _from_lasting(self, text: str, key: str) -> Composable:
        kind = self.found.type(key)
        if kind == "bytea":
            return SQL("decode({}, 'hex')").format(SQL(text))
        if kind == "timestamp with time zone":
            return SQL("({}::timestamp at time zone 'utc')").format(SQL(text))
        return self.cast(SQL(text), key)

    @cached_property
    def key_texts(self) -> Composable:
        return COMMA.join(
            SQL("{}::text as {}").format(self.column(key), SQL(f"trueup_k{n}")) for n, key in enumerate(self.keys, 1)
        )

    def state_is(self, *states: str) -> Composable:
        column = self.found.spec.state
        assert column is not None
        values = [self.cast(quoted(state), column) for state in states]
        if len(values) == 1:  # one value, so that an index made for this state alone serves
            return SQL("{} = {}").format(self.column(column), values[0])
        return SQL("{} in ({})").format(self.column(column), COMMA.join(values))

    @cached_property
    def due(self) -> Composable | None:
        """Whether its time has come, apart from its state."""
        selection = self.selection
        if selection.due_at is not None:
            return SQL("{} <= {}").format(self.column(selection.due_at), self.moment(selection.due_at))
        if selection.stale_for is not None:
            column = self.found.spec.changed_at
            assert column is not None
            if not self.nulls_are_stale or self.found.columns[column].not_null:
                return self._old
            return SQL("({} or {} is null)").format(self._old, self.column(column))
        return None

    @property
    def _old(self) -> Composable:
        column = self.found.spec.changed_at
        assert column is not None
        return SQL("{} < {} - {}").format(self.column(column), self.moment(column), self.stale_for)

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
        # It may end with a comment, which must not swallow the bracket.
        return [] if where is None else [SQL("({}\n)").format(SQL(_escaped(where)))]

    @property
    def unleased(self) -> list[Composable]:
        lease = self.found.spec.lease_columns
        if lease is None:
            return []
        until = self.column(lease[1])
        return [SQL("({} is null or {} <= {})").format(until, until, NOW)]

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
        """What tells whether somebody else has written to the row since."""
        spec = self.found.spec
        column = spec.version or spec.changed_at
        if column is not None:
            return SQL("{}::text").format(self.column(column))
        # Renewing a lease in the user's row gives it a new xmin.
        return SQL("null::text") if spec.lease_columns is not None else SQL("t.xmin::text")

    def as_seen(self, cte: str) -> Composable:
        """The row of `t` is as the claim left it."""
        spec = self.found.spec
        parts: list[Composable] = []
        if spec.state is not None:
            parts.append(
                SQL("{} = {}").format(self.column(spec.state), self.cast(SQL(f"{cte}.seen_state"), spec.state))
            )
        column = spec.version or spec.changed_at
        if column is not None:
            seen = self.cast(SQL(f"{cte}.seen"), column)
            parts.append(SQL("{} is not distinct from {}").format(self.column(column), seen))
        elif spec.lease_columns is None:
            parts.append(SQL("t.xmin::text = {}").format(SQL(f"{cte}.seen")))
        if spec.lease_columns is not None:
            parts.append(self.owned(cte))
        return AND.join(parts)

    def owned(self, cte: str) -> Composable:
        """The lease in the user's own columns is ours, and has not passed."""
        lease = self.found.spec.lease_columns
        assert lease is not None
        owner, until = self.column(lease[0]), self.column(lease[1])
        return SQL("{} = {} and {} > {}").format(owner, _owner(f"{cte}.term"), until, NOW)

    @property
    def asked_for(self) -> Composable:
        return COMMA.join(SQL("{} as {}").format(self.column(name), named(name)) for name in self.columns)

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
                typed,
                self.key_texts,
            ]
        )

    @property
    def handed(self) -> Composable:
        """What comes back of a claimed row: what is known about it, then the row."""
        return COMMA.join([_TOLD, *self._of_row("c")])

    def _of_row(self, cte: str) -> list[Composable]:
        texts = [SQL(f"{cte}.trueup_k{n}") for n in range(1, len(self.keys) + 1)]
        return [SQL(f"{cte}.trueup_seen, {cte}.trueup_due"), *texts, *(self.column(name, cte) for name in self.columns)]

    # -- claiming -----------------------------------------------------------------------------------------------------

    def claim_fresh(self, place: Place) -> bytes:
        return self._claim("rows/claim_fresh", branches=self.branches(place), sorted=self.sorted, place=self.place)

    def claim_again(self) -> bytes:
        return self._claim("rows/claim_again", t_is_r=self.key_from_known("r.trueup_key"))

    def _claim(self, name: str, **more: Composable) -> bytes:
        claimed_as = self.selection.claimed_as
        state: Composable = SQL("k.trueup_state")
        again_state, again_changed_at = state, _CHANGED_AT
        if claimed_as is not None:
            # Found in its working state: the one it came from is known, or else the first is taken for it.
            working, first = quoted(claimed_as), quoted(self.selection.states[0])
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
            free=self.free,
            lock=self.lock_for(name for name, _ in self.marked),
            fresh_state=state,
            again_state=again_state,
            again_changed_at=again_changed_at,
            moved=self.moved,
            passed=COMMA.join([*(SQL(f"k.{name}") for name in self._typed_names), *self._of_row("k")]),
            given=SQL("moved" if self.marks_rows else "mine"),
            handed=self.handed,
            **more,
        )

    @property
    def marked(self) -> list[Assignment]:
        """What a claim writes to the user's row."""
        if not self.marks_rows:
            return []
        spec, marks = self.found.spec, []
        if self.selection.claimed_as is not None:
            assert spec.state is not None
            marks.append((spec.state, self.cast(quoted(self.selection.claimed_as), spec.state)))
            marks.extend(self._touched(()))
        if spec.lease_columns is not None:
            owner, until = spec.lease_columns
            marks.append((owner, _owner("c.trueup_term")))
            marks.append((until, SQL("{} + make_interval(secs => %(lease_for)s::float8)").format(NOW)))
        return marks

    @property
    def moved(self) -> Composable:
        if not self.marked:
            return SQL("")
        return self._fragment(
            "rows/_moved",
            marks=_set(self.marked),
            told=_TOLD,
            t_is_c=self.same_key("c"),
            seen=self.seen,
            key_texts=self.key_texts,
            columns=self.asked_for,
        )

    def branches(self, place: Place) -> Composable:
        """One limited select per state, so that an index over (state, order, key) gives each in order.

        Those without a value in the order's column are selects of their own: no plain index has them first.
        """
        selection = self.selection
        groups: list[tuple[list[Composable], bool]] = [([self.state_is(state)], True) for state in selection.states]
        groups = groups or [([], True)]
        if selection.claimed_as is not None:  # left behind by a process that died: due whatever the time
            groups.append(([self.state_is(selection.claimed_as)], False))
        parts: list[Composable] = []
        for conditions, timed in groups:
            without = self._without_value(timed)
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
            parts.append(self._old)
        elif timed and self.due is not None:
            parts.append(self.due)
        return parts

    def _without_value(self, timed: bool) -> list[Composable] | None:
        """Conditions of rows that have none; None when there are no such rows, or they are never chosen."""
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
        return [*parts, self.due] if self.due is not None else parts

    def _branch(self, conditions: Iterable[Composable], place: Place, *, with_value: bool) -> Composable:
        order, keys = self.selection.order, [self.column(key) for key in self.keys]
        value = [self.column(order.column)] if order.column is not None and with_value else []
        conditions = [*conditions, *self.where, *self.unleased]
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

    def _after(self, value: Sequence[Composable], keys: Sequence[Composable]) -> Composable:
        """Behind where the sweep has come to."""
        order = self.selection.order
        positions = [self.cast(SQL(f"%(after_{n})s::text"), key) for n, key in enumerate(self.keys, 1)]
        if value:
            assert order.column is not None
            positions.insert(0, self.cast(SQL("%(after_order)s::text"), order.column))
        return SQL("({}) {} ({})").format(
            COMMA.join([*value, *keys]), SQL("<" if order.descending else ">"), COMMA.join(positions)
        )

    @property
    def sorted(self) -> Composable:
        order = self.selection.order
        names = [*(["trueup_order"] if order.column is not None else []), *self._typed_names]
        direction = " desc" if order.descending else ""
        return SQL(", ".join(["trueup_null desc", *(f"{name}{direction}" for name in names)]))

    @property
    def place(self) -> Composable:
        order = ["place.trueup_order::text"] if self.selection.order.column is not None else ["null::text"]
        return SQL(", ".join([*order, *(f"place.{name}::text" for name in self._typed_names)]))

    @property
    def _typed_names(self) -> list[str]:
        return [f"trueup_t{n}" for n in range(1, len(self.keys) + 1)]

    # -- settling -----------------------------------------------------------------------------------------------------

    def change(self, columns: tuple[str, ...]) -> bytes:
        """For outcomes that set these columns."""
        assignments = self._changes(columns, lambda name: SQL(f"h.{name}"))
        lock = self.lock_for(name for name, _ in assignments)
        if not assignments:
            assignments.append((self.keys[0], self.column(self.keys[0])))
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
        return self._settle("rows/change", names, lock=lock, assignments=_set(assignments))

    def remove(self) -> bytes:
        return self._settle("rows/remove", ["seen_state", "seen"], lock=SQL("update"))

    def lock_for(self, columns: Iterable[str]) -> Composable:
        """The lock that writing these columns needs, so that writing them waits for nobody.

        Whoever inserts a row that refers to this one locks its key. That stands in the way only of a change to a column that
        somebody could refer to, or that decides which partition the row is in; those are in a unique index, too.
        """
        referable = {
            column for unique in self.found.uniques if unique.flaw != "is partial" for column in unique.columns
        }
        return SQL("no key update" if referable.isdisjoint(columns) else "update")

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
        ]
        return self._settle(
            "rows/put_back",
            names,
            lock=self.lock_for(name for name, _ in assignments),
            assignments=_set(assignments),
            as_left=AND.join(as_left),
        )

    def renew_both(self) -> bytes:
        lease = self.found.spec.lease_columns
        assert lease is not None
        return self._settle(
            "rows/renew_both",
            [],
            lock=self.lock_for([lease[1]]),
            until=named(lease[1]),
            owned=self.owned("h"),
            seen=self.seen,
            skip=True,
        )

    def _settle(
        self, name: str, names: Sequence[str], *, lock: Composable, skip: bool = False, **more: Composable
    ) -> bytes:
        every = ["key", "term", *(f"k{n}" for n in range(1, len(self.keys) + 1)), *names]
        arrays = COMMA.join(SQL(f"%({each})s::{_ARRAYS.get(each, 'text[]')}") for each in every)
        held = self._fragment(
            "rows/_held", t_is_m=self.key_from_texts("m"), lock=lock, skip=SQL(" skip locked" if skip else "")
        )
        return self._compose(
            name,
            arrays=arrays,
            names=SQL(", ".join(every)),
            held=held,
            t_is_h=self.key_from_texts("h"),
            as_seen=self.as_seen("h") if "seen" in names else SQL("true"),
            cleared=self._cleared(),
            **more,
        )

    def _cleared(self) -> Composable:
        """After a conflict the user's own lease columns are ours to clear, nothing else is."""
        if self.found.spec.lease_columns is None:
            return SQL("")
        return self._fragment(
            "rows/_cleared",
            cleared=_set(self._lease_cleared),
            t_is_h=self.key_from_texts("h"),
            owned=self.owned("h"),
        )

    def _touched(self, columns: Sequence[str]) -> list[Assignment]:
        """The time of change and the version, unless the outcome sets them itself."""
        spec = self.found.spec
        touched: list[Assignment] = []
        if spec.changed_at is not None and spec.changed_at not in columns:
            touched.append((spec.changed_at, self.moment(spec.changed_at)))
        if spec.version is not None and spec.version not in columns:
            touched.append((spec.version, self._next_version))
        return touched

    @property
    def _next_version(self) -> Composable:
        version = self.found.spec.version
        assert version is not None
        return SQL("coalesce({}, 0) + 1").format(self.column(version))

    @property
    def _lease_cleared(self) -> list[Assignment]:
        return [(name, SQL("null")) for name in self.found.spec.lease_columns or ()]

    # -- the rest -----------------------------------------------------------------------------------------------------

    def forget(self) -> bytes:
        return self._compose(
            "rows/forget",
            t_is_r=self.key_from_known("r.key"),
            chosen=self.chosen,
            in_state=AND.join([self.in_states(due=False, claimed=True), *self.where]),
        )

    # -- in a transaction that has the row locked ---------------------------------------------------------------------

    def lock(self) -> bytes:
        columns = COMMA.join(self.column(name) for name in self.columns)
        return self._compose(
            "rows/lock", t_is_p=self.key_from_texts("%"), chosen=self.chosen, seen=self.seen, columns=columns
        )

    def locked_out(self) -> bytes:
        return self._compose("rows/locked_out", t_is_p=self.key_from_texts("%"), chosen=self.chosen)

    def change_locked(self, columns: tuple[str, ...]) -> bytes:
        """As `change`, for one row."""
        assignments = self._changes(columns, lambda name: SQL(f"%({name})s::text"))
        return self._compose(
            "rows/change_locked",
            t_is_p=self.key_from_texts("%"),
            as_seen=self.as_seen("h"),
            assignments=_set(assignments or [(self.keys[0], self.column(self.keys[0]))]),
        )

    def remove_locked(self) -> bytes:
        return self._compose("rows/remove_locked", t_is_p=self.key_from_texts("%"), as_seen=self.as_seen("h"))

    def _changes(self, columns: Sequence[str], value: Callable[[str], Composable]) -> list[Assignment]:
        """What an outcome with these columns writes. `value` says where its parts come from: state, c1, c2, …"""
        spec = self.found.spec
        assignments: list[Assignment] = []
        if spec.state is not None and spec.state not in columns:
            assignments.append((spec.state, self.cast(value("state"), spec.state)))
        assignments += [(name, self.cast(value(f"c{n}"), name)) for n, name in enumerate(columns, 1)]
        return [*assignments, *self._touched(columns), *self._lease_cleared]

    # -- looking ------------------------------------------------------------------------------------------------------

    def waiting(self) -> bytes:
        return self._compose("rows/waiting", free=self.free, due=self.became_due, t_key=self.key_text)

    def listed(self) -> bytes:
        return self._compose(
            "rows/listed",
            t_key=self.key_text,
            state=self._state_text,
            due=self.became_due,
            columns=self.asked_for,
            free=self.free,
            ordered=self._ordered(nulls_first=True),
        )

    def _ordered(self, *, nulls_first: bool = False) -> Composable:
        """As a sweep walks. Where rows without a value are chosen at all, they come first, which no plain index gives."""
        order = self.selection.order
        direction = SQL(" desc" if order.descending else "")
        columns = [*([order.column] if order.column is not None else []), *self.keys]
        parts = [SQL("{}{}").format(self.column(name), direction) for name in columns]
        if nulls_first and not order.descending and self._without_value(timed=True) is not None:
            parts[0] = SQL("{} nulls first").format(parts[0])
        return COMMA.join(parts)

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
        return self._compose("rows/delete", **names, **_LATENESS)

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
            assignments=_set(assignments),
            **_LATENESS,
        )

    def _oldest(self, state: str | None, what: Composable, lock: Composable) -> Composable:
        """The oldest that may be purged, locked; those that somebody else has locked are passed over."""
        parts = [self.state_is(state)] if state is not None else []
        parts += [*([self.due] if self.due is not None else []), *self.where, *self.unleased]
        eligible = AND.join(parts) if parts else SQL("true")
        return self._fragment("rows/_oldest", what=what, eligible=eligible, ordered=self._ordered(), lock=lock)

    @property
    def _typed_keys(self) -> Composable:
        return COMMA.join(
            SQL("{} as {}").format(self.column(key), SQL(f"trueup_t{n}")) for n, key in enumerate(self.keys, 1)
        )

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

    @property
    def _state_text(self) -> Composable:
        state = self.found.spec.state
        return SQL("null::text") if state is None else SQL("{}::text").format(self.column(state))

    # -- composing ----------------------------------------------------------------------------------------------------

    def _fragment(self, name: str, **names: Composable) -> Composable:
        place = sql.Identifier(self.statements.schema)
        return SQL(source(name).strip()).format(schema=place, now=NOW, table=self.table, **names)

    def _compose(self, name: str, **names: Composable) -> bytes:
        return self.statements.compose(name, table=self.table, **names)


# How late rows that became due at `due` are, in seconds. There is no time since -infinity, and one such row must not stop all others.
_SINCE = "greatest({}, timestamptz '0001-01-01 00:00+00')"
_LATE = f"date_part('epoch', {{now}} - {_SINCE})"
_LATENESS: Mapping[str, Composable] = {
    "late": SQL(_LATE.format("due", now="{}")).format(NOW),
    "late_of_min": SQL(_LATE.format("min(due)", now="{}")).format(NOW),
    "late_of_max": SQL(_LATE.format("max(due)", now="{}")).format(NOW),
    # Faster than the sum of the differences, and as exact as is of use.
    "late_in_all": SQL("count(*) * date_part('epoch', {}) - sum(date_part('epoch', {}))").format(
        NOW, SQL(_SINCE.format("due"))
    ),
    "between_different_bounds": SQL(
        "width_bucket(-worst_s, %(bounds)s::float8[]) <> width_bucket(-least_s, %(bounds)s::float8[])"
    ),
}

# Of a claimed row, in the order that `Rows` reads.
_TOLD = SQL(
    "c.trueup_key, c.trueup_term, c.trueup_attempt, c.trueup_spent, c.trueup_claimed_at, c.trueup_was_state, c.trueup_was_changed_at"
)
_CHANGED_AT: Composable = SQL("k.trueup_changed_at")
_ARRAYS: Mapping[str, str] = {"term": "bigint[]", "rest_for": "float8[]", "delay": "float8[]", "attempt": "int[]"}


def _text_of_key(texts: str, n: int) -> str:
    return f"%(k{n})s::text" if texts == "%" else f"{texts}.k{n}"


def _set(assignments: Iterable[Assignment]) -> Composable:
    return COMMA.join(SQL("{} = {}").format(named(column), value) for column, value in assignments)


def _owner(term: str) -> Composable:
    """What is written into the owner's column: who, and the term, so that two claims by one process are two owners."""
    return SQL("(%(owner)s::text || '/' || {}::text)").format(SQL(term))


def quoted(text: str) -> Composable:
    """A text in single quotes."""
    return SQL(_escaped(sql.Literal(text).as_string(None)))


def _escaped(text: str) -> str:
    """Text that becomes part of a statement with parameters: its percent signs are not placeholders."""
    return text.replace("%", "%%")
