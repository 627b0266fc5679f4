"""What a reconciler's handler returns: what should become of its row.

Nothing returned is `Unchanged()`. `GiveUp` is raised, any other exception means: try again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.jobs.failure import describe, type_name
from trueup.jobs.job import Draft
from trueup.options import flag
from trueup.texts import fault_in_text

State = str | int | Enum

NOTHING: Mapping[str, Any] = {}


class _Value:
    """Equal to another of the same class with the same parts."""

    __slots__: tuple[str, ...] = ()

    def _parts(self) -> tuple[Any, ...]:
        return type(self), *(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Value) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())


class To(_Value):
    """Move the row to another state, set these columns, and enqueue `then` (`[job.call(…), …]`) in the same transaction.

    `To("stored", {"then": 1})` sets a column whose name is taken here.
    """

    __slots__ = ("columns", "state", "then")

    def __init__(
        self, state: State, more: Mapping[str, Any] = NOTHING, /, *, then: Iterable[Draft] = (), **columns: Any
    ) -> None:
        self.state = state_text(state)
        self.then = _drafts(then)
        self.columns = _columns(more, columns)

    def __repr__(self) -> str:
        return _shown("To", [repr(self.state)], self.columns, self.then)


class Now(_Value):
    """The database's time, as the value of a column that a claim sets: `claimed_as=To("running", started_at=Now())`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Now()"


class Stay(_Value):
    """Leave the row in its state, set these columns; the time of its last change is refreshed."""

    __slots__ = ("columns", "then")

    def __init__(self, more: Mapping[str, Any] = NOTHING, /, *, then: Iterable[Draft] = (), **columns: Any) -> None:
        self.then = _drafts(then)
        self.columns = _columns(more, columns)

    def __repr__(self) -> str:
        return _shown("Stay", [], self.columns, self.then)


class Delete(_Value):
    """Delete the row."""

    __slots__ = ("then",)

    def __init__(self, *, then: Iterable[Draft] = ()) -> None:
        self.then = _drafts(then)

    def __repr__(self) -> str:
        return _shown("Delete", [], {}, self.then)


class Unchanged(_Value):
    """Nothing to do: the row is not written to, and is looked at again after the reconciler's `revisit`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Unchanged()"


class Again(_Value):
    """Not yet: look at the row again after this long. No attempt is spent.

    With `everybody=True` no row of the reconciler is looked at until then (with `pause_by=`: no row of the same key). Use it when a
    receiver answers with Retry-After.
    """

    __slots__ = ("after", "everybody")

    def __init__(self, after: Duration, *, everybody: bool = False) -> None:
        self.after: timedelta = duration_of("Again: after", after)
        self.everybody = flag("Again: everybody", everybody)

    def __repr__(self) -> str:
        return f"Again({self.after.total_seconds():g}s{', everybody=True' if self.everybody else ''})"


Outcome = To | Stay | Delete | Unchanged | Again


def translated(
    outcome: Outcome, column: Callable[[str], str], stored: Callable[[str, Any], Any], state: str | None
) -> Outcome:
    """The same outcome in the table's own names and values, as a model maps them."""
    if not isinstance(outcome, To | Stay):
        return outcome
    names = {name: column(name) for name in outcome.columns}
    columns = {names[name]: stored(names[name], value) for name, value in outcome.columns.items()}
    if isinstance(outcome, Stay):
        return Stay(columns, then=outcome.then)
    return To(outcome.state if state is None else stored(state, outcome.state), columns, then=outcome.then)


def state_text(state: State) -> str:
    """A state as PostgreSQL reads it, whatever the type of its column."""
    value = state.value if isinstance(state, Enum) else state
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigError(f"state {state!r}: a text or a whole number is needed, or an Enum of such")
    text = str(value)
    if fault_in_text(text, "state"):
        raise ConfigError(f"state {state!r}: PostgreSQL cannot store this text")
    return text


def _columns(more: Any, columns: dict[str, Any]) -> Mapping[str, Any]:
    """An Enum is stored as its value, like a state: the driver would store its name."""
    if not isinstance(more, Mapping):
        raise TypeError(f"give columns by name, or as a mapping from names to values, not as {more!r:.60}")
    both = sorted(more.keys() & columns.keys())
    if both:
        raise TypeError(f"column {both[0]!r} is set twice")
    values = {**more, **columns}
    return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}


def _drafts(then: Any) -> tuple[Draft, ...]:
    # A draft is itself a tuple: `then=job.call()` would look like a list of its fields.
    drafts = (then,) if isinstance(then, Draft) or not isinstance(then, Iterable) else tuple(then)
    for draft in drafts:
        if not isinstance(draft, Draft):
            raise TypeError(f"then= takes what job.call(…) gives, not {draft!r:.60}")
    return drafts


def _shown(name: str, parts: list[str], columns: Mapping[str, Any], then: Sequence[Draft]) -> str:
    parts = [*parts, *(f"{column}={value!r}" for column, value in columns.items())]
    if then:
        parts.append(f"then=[{', '.join(draft.kind for draft in then)}]")
    return f"{name}({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed attempt at a row, as `failed=` and `exhausted=` get it."""

    error: BaseException
    attempt: int
    max_attempts: int
    again_at: datetime | None  # when it is tried again, by the database's clock; None: it is not

    @property
    def message(self) -> str:
        """The error in words that can be stored: cleaned, cut to size, passwords masked."""
        return f"{type_name(self.error)}: {describe(self.error)}"
