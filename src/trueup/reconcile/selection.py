"""Which rows a reconciler selects, and in which order; the claiming statements are composed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trueup.durations import Duration, duration_of, format_duration
from trueup.errors import ConfigError
from trueup.reconcile.outcome import State, To, state_text
from trueup.reconcile.table import TableSpec, checked_identifier


@dataclass(frozen=True, slots=True)
class Order:
    """The order by this column (None: by the key alone), then by the key. Rows without a value come first: they were never handled."""

    column: str | None = None
    descending: bool = False

    @classmethod
    def parse(cls, who: str, text: str) -> Order:
        name, direction = ordered_by(text)
        return cls(checked_identifier(f"{who}: order_by", name), direction == "desc")


def ordered_by(text: str) -> tuple[str, str]:
    """The column, whose name may have blanks in it, and `asc`, `desc` or nothing."""
    name, _, last = text.strip().rpartition(" ")
    return (name.strip(), last.lower()) if name and last.lower() in ("asc", "desc") else (text.strip(), "")


TIMES = ("now(", "clock_timestamp(", "timestamp(", "current_")  # in a condition: it may become true without a write


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows in one of these states that have not changed for `stale_for`, or whose `due_at` has come."""

    table: TableSpec
    states: tuple[str, ...]
    stale_for: timedelta | None = None
    due_at: str | None = None
    order: Order = Order()
    claimed_as: str | None = None
    claimed_set: tuple[tuple[str, Any], ...] = ()  # further columns that a claim writes

    @classmethod
    def of(
        cls,
        who: str,
        table: TableSpec,
        states: Sequence[State],
        *,
        stale_for: Duration | None = None,
        due_at: str | None = None,
        order_by: str | None = None,
        claimed_as: State | To | None = None,
    ) -> Selection:
        texts = tuple(dict.fromkeys(state_text(state) for state in states))
        if texts and table.state is None:
            raise ConfigError(f"{who}: table {table} was declared without state=, so rows cannot be chosen by state")
        if not texts and table.state is not None:
            raise ConfigError(f'{who}: name its states, as in reconcile("paid", …)')
        if stale_for is not None and due_at is not None:
            raise ConfigError(f"{who}: give stale_for= or due_at=, not both")
        if stale_for is not None and table.changed_at is None:
            raise ConfigError(
                f"{who}: stale_for= needs the time of a row's last change; give changed_at= to table {table}"
            )
        if due_at is not None:
            checked_identifier(f"{who}: due_at", due_at)
        working, claimed_set = _working_state(who, table, due_at, claimed_as)
        if working in texts:
            raise ConfigError(f"{who}: claimed_as={working!r} is one of the reconciler's states; use a different one")
        stale = None if stale_for is None else duration_of(f"{who}: stale_for", stale_for)
        if order_by is not None:
            order = Order.parse(who, order_by)
        elif due_at is not None or stale is not None:
            order = Order(due_at or table.changed_at)
        else:
            order = Order()
        return cls(table, texts, stale, due_at, order, working, claimed_set)

    @property
    def due_anywhere(self) -> bool:
        """Whether a row in the middle of the order can become due without a write. In the order of due times, rows do so at one end."""
        if any(word in (self.table.where or "").lower() for word in TIMES):
            return True
        due = self.table.changed_at if self.stale_for is not None else self.due_at
        return due is not None and self.order.column != due

    def __str__(self) -> str:
        """As people read it: `wallpapers: uploading, unchanged for 10m`."""
        parts = [" or ".join(self.states) or "all rows"]
        if self.stale_for is not None:
            parts.append(f"unchanged for {format_duration(self.stale_for)}")
        if self.due_at is not None:
            parts.append(f"{self.due_at} has come")
        if self.table.where is not None:
            parts.append(self.table.where)
        return f"{self.table}: {', '.join(parts)}"


def _working_state(
    who: str, table: TableSpec, due_at: str | None, claimed_as: State | To | None
) -> tuple[str | None, tuple[tuple[str, Any], ...]]:
    """The state that a claim puts rows in, and the further columns that it writes."""
    if claimed_as is None:
        return None, ()
    columns: tuple[tuple[str, Any], ...] = ()
    if isinstance(claimed_as, To):
        ours = {table.state, table.changed_at, table.version, due_at, *table.key, *(table.lease_columns or ())}
        taken = [column for column in claimed_as.columns if column in ours]
        if taken or claimed_as.then:
            what = f"{taken[0]!r} is a column that trueup sets itself" if taken else "a claim cannot enqueue jobs"
            raise ConfigError(f"{who}: claimed_as={claimed_as!r}: {what}; omit it")
        columns = tuple(claimed_as.columns.items())
        claimed_as = claimed_as.state
    if table.state is None:
        raise ConfigError(f"{who}: claimed_as= needs a table declared with state=")
    return state_text(claimed_as), columns
