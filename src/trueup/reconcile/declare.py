"""`app.table(…)`: a user's table, on which reconcilers are declared."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, Unpack, cast

from trueup.durations import Duration
from trueup.errors import ConfigError
from trueup.jobs.names import checked_name
from trueup.options import naming, shown, wrong
from trueup.reconcile.handler import RowHandler, outcome_of
from trueup.reconcile.models import describe_model
from trueup.reconcile.outcome import Delete, Now, Outcome, State, Stay, To, Unchanged, state_text, translated
from trueup.reconcile.purge import Purge, PurgeOptions
from trueup.reconcile.reconciler import ReconcileOptions, Reconciler
from trueup.reconcile.selection import Selection, ordered_by
from trueup.reconcile.table import TableSpec

Said = Outcome | type[Stay] | type[Delete] | type[Unchanged] | None  # what a handler may return
F = TypeVar("F", bound=Callable[..., Awaitable[Said] | Said])


class Register(Protocol):
    """What a table needs of its App."""

    def __call__(self, declared: Reconciler | Purge) -> None: ...


class DeclaredReconcilers:
    """What is declared on an App, by name."""

    def __init__(self) -> None:
        self._declared: dict[str, Reconciler | Purge] = {}

    def add(self, declared: Reconciler | Purge) -> None:
        if declared.name in self._declared:
            raise ConfigError(f"reconciler {declared.name!r} is declared twice; give one of them name=")
        for other in self._declared.values():
            if _working_state(declared) is not None and _working_state(declared) == _working_state(other):
                raise ConfigError(
                    f"reconciler {declared.name!r}: claimed_as={declared.selection.claimed_as!r} is also the working state of {other.name!r} on "
                    "the same table, so each would take over the other's rows; use a different state"
                )
        self._declared[declared.name] = declared

    def get(self, name: str) -> Reconciler | Purge | None:
        return self._declared.get(name)

    def names(self) -> list[str]:
        return sorted(self._declared)

    def all(self) -> list[Reconciler | Purge]:
        return list(self._declared.values())


def _working_state(declared: Reconciler | Purge) -> tuple[TableSpec, str] | None:
    """The state of rows that this reconciler has claimed, and the column of the state."""
    selection = declared.selection
    if selection.claimed_as is None:
        return None
    place = TableSpec(selection.table.schema, selection.table.name, ())
    return place, selection.claimed_as


class Table:
    """A user's table. It is inspected when a worker starts, not before."""

    def __init__(self, register: Register, spec: TableSpec) -> None:
        self.spec = spec
        self._register = register

    def __repr__(self) -> str:
        return f"<Table {self.spec}>"

    def reconcile(
        self,
        *states: State,
        stale_for: Duration | None = None,
        due_at: str | None = None,
        order_by: str | None = None,
        claimed_as: State | To | None = None,
        working_state: State | To | None = None,
        **options: Unpack[ReconcileOptions],
    ) -> Callable[[F], F]:
        """Call a function for each row in one of these states that is stale or due. What it returns decides what becomes of the row.

        `working_state` (or `claimed_as`, which is the same) is the state of a row while a worker handles it. The decorated function
        is returned unchanged, so tests can call it. ReconcileOptions lists the other options.
        """
        if working_state is not None and claimed_as is not None:
            raise ConfigError("working_state= and claimed_as= are the same; give one of them")
        claimed_as = working_state if claimed_as is None else claimed_as
        if any(map(callable, states)):  # a decorator without its parentheses would declare nothing, and say nothing
            raise ConfigError(
                f'reconcile takes states, not {shown(states)}; write @table.reconcile("a state", every="5m")'
            )
        local_names = sys._getframe(1).f_locals

        def declare(function: F) -> F:
            name = _name(options, getattr(function, "__name__", "") or "reconciler")
            who = f"reconciler {name!r}"
            with naming(f"{who}: {'claimed_as' if working_state is None else 'working_state'}"):
                working = self._claimed_as(claimed_as)
            selection = Selection.of(
                who,
                self.spec,
                [self._state(state) for state in states],
                stale_for=stale_for,
                due_at=self._column(due_at),
                order_by=self._order(who, order_by),
                claimed_as=working,
            )
            handler = RowHandler(function, who, local_names)
            handler.translate = self._translate
            self._register(Reconciler.of(name, selection, handler, self._translated(options)))
            return function

        return declare

    def delete(
        self,
        *states: State,
        stale_for: Duration | None = None,
        due_at: str | None = None,
        **options: Unpack[PurgeOptions],
    ) -> None:
        """Delete rows in these states that are stale or due, in batches and inside the database. PurgeOptions lists the options."""
        self._purge("delete", states, None, {}, stale_for, due_at, options)

    def move(
        self,
        *states: State,
        to: State,
        stale_for: Duration | None = None,
        due_at: str | None = None,
        set: dict[str, Any] | None = None,
        **options: Unpack[PurgeOptions],
    ) -> None:
        """Move rows in these states that are stale or due to another state, and `set` these columns; otherwise like `delete`."""
        if set is not None and not isinstance(set, Mapping):
            raise wrong("move: set", set, "a mapping from columns to values")
        with naming("move: to"):
            state = self._state(to)
        self._purge("move", states, state, set or {}, stale_for, due_at, options)

    def _purge(
        self,
        verb: str,
        states: tuple[State, ...],
        to: str | None,
        columns: dict[str, Any],
        stale_for: Duration | None,
        due_at: str | None,
        options: PurgeOptions,
    ) -> None:
        words = [verb, self.spec.name, *(state_text(state) for state in states)]
        name = _name(options, _plain("-".join(words)))
        who = f"reconciler {name!r}"
        if stale_for is None and due_at is None:
            raise ConfigError(
                f"{who}: give stale_for= or due_at=; otherwise it would change rows the moment they are inserted"
            )
        if to is not None and self.spec.state is None:
            raise ConfigError(f"{who}: table {self.spec} was declared without state=, so rows cannot be moved")
        named = [self._state(state) for state in states]
        selection = Selection.of(who, self.spec, named, stale_for=stale_for, due_at=self._column(due_at))
        columns = dict(cast(Stay, self._translate(Stay(columns))).columns)
        self._register(Purge.of(name, selection, to, columns, options))

    def _claimed_as(self, claimed_as: State | To | None) -> State | To | None:
        if not isinstance(claimed_as, To):
            return None if claimed_as is None else self._state(claimed_as)
        moments = {name for name, value in claimed_as.columns.items() if isinstance(value, Now)}
        plain = {name: value for name, value in claimed_as.columns.items() if name not in moments}
        made = cast(To, self._translate(To(claimed_as.state, plain, then=claimed_as.then)))
        return To(
            made.state, {**made.columns, **{cast(str, self._column(name)): Now() for name in moments}}, then=made.then
        )

    def _translate(self, outcome: Outcome) -> Outcome:
        """An outcome in the table's own names and values."""
        model = self.spec.model
        return outcome if model is None else translated(outcome, model.column, model.stored, self.spec.state)

    def _translated(self, options: ReconcileOptions) -> ReconcileOptions:
        """The same options in the table's own names and values."""
        made = options.copy()
        pause_by, failed, exhausted = options.get("pause_by"), options.get("failed"), options.get("exhausted")
        if isinstance(pause_by, str):
            made["pause_by"] = self._column(pause_by)
        if failed is not None:
            made["failed"] = self._translating(failed)
        if exhausted is not None:
            made["exhausted"] = self._translating(exhausted)
        return made

    def _translating(self, given: Any) -> Any:
        """The same for what is given instead of an outcome: a function that returns one."""
        if self.spec.model is None or not callable(given):
            return self._translate(given)

        def translating(row: Any, failed: Any) -> Any:
            returned = given(row, failed)
            return None if returned is None else self._translate(outcome_of(returned, getattr(given, "__name__", "it")))

        return translating

    def _state(self, state: State) -> str:
        """As the table has it: a model may store an Enum by name."""
        text, column = state_text(state), self.spec.state
        if self.spec.model is None or column is None:
            return text
        return str(self.spec.model.stored(column, text))

    def _column(self, named: str | None) -> str | None:
        return named if named is None or self.spec.model is None else self.spec.model.column(named)

    def _order(self, who: str, order_by: str | None) -> str | None:
        if order_by is not None and not isinstance(order_by, str):
            raise wrong(f"{who}: order_by", order_by, "a column, such as 'created_at' or 'created_at desc',")
        if order_by is None or self.spec.model is None:
            return order_by
        name, direction = ordered_by(order_by)
        return f"{self._column(name)} {direction}".strip()


def table(
    register: Register,
    name: Any,
    key: Any,
    state: Any,
    changed_at: Any,
    version: Any,
    lease_columns: Iterable[Any] | None,
    where: Any,
) -> Table:
    """From a name, or from a model, whose attributes may then be named as well."""
    model = describe_model(name)
    if model is None:
        if key is None:
            raise ConfigError(f"table {name!r}: key= is needed: the columns of its primary key")
        return Table(register, TableSpec.of(name, key, state, changed_at, version, lease_columns, where))

    def column(named: Any) -> str | None:
        return None if named is None else model.column(named)

    keys: Any = model.key if key is None else key
    keys = [keys] if isinstance(keys, str) or not isinstance(keys, Iterable) else list(keys)
    if not keys:
        raise ConfigError(f"table {model.name!r}: the model has no primary key; give key=")
    leases = None if lease_columns is None else [model.column(each) for each in lease_columns]
    spec = TableSpec.of(
        (model.schema, model.name),
        [model.column(each) for each in keys],
        column(state),
        column(changed_at),
        column(version),
        leases,
        model.where(where),
    )
    return Table(register, replace(spec, model=model))


def _name(options: ReconcileOptions | PurgeOptions, default: str) -> str:
    given = options.get("name")
    return checked_name("reconciler name", default if given is None else given)


def _plain(words: str) -> str:
    """A name made of whatever tables and states are called."""
    return re.sub(r"[^A-Za-z0-9_.:\-/]", "_", words)[:200]
