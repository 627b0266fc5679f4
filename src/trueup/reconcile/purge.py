"""`table.move(…)` and `table.delete(…)`: what the database can do alone, in batches, without a handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from trueup.backoff import SHORT_RETRY, Retry, retry_policy
from trueup.durations import Duration, Rate, format_duration
from trueup.errors import ConfigError
from trueup.options import check_known, flag, whole
from trueup.reconcile.reconciler import interval, lane, positive, rate_of
from trueup.reconcile.selection import Selection

MAX_BATCH = 100_000


class PurgeOptions(TypedDict, total=False):
    """How often a move or deletion runs, and how much it takes.

    `every` is the interval of sweeps (None: they run only on request), `batch` the number of rows per statement, and `rate` a limit for
    the whole fleet. A row that PostgreSQL refuses is tried again as `retry` says, and quarantined after its last attempt.
    `max_fraction` refuses a sweep that would touch more than this share of the table: a guard against a wrong clock, a wrong import or
    a wrong condition.
    """

    name: str | None
    every: Duration | None
    batch: int
    rate: str | Rate | None
    max_fraction: float | None
    run_at_start: bool
    deadline: Duration | None
    retry: Retry | None


@dataclass(frozen=True, slots=True)
class Purge:
    """Rows that are moved to `to` with these columns, or deleted when it is None."""

    name: str
    selection: Selection
    to: str | None
    columns: Mapping[str, Any]
    every: timedelta
    batch: int
    rate: Rate | None
    max_fraction: float | None
    run_at_start: bool
    deadline: timedelta | None
    on_demand: bool = False  # no worker begins it by itself
    retry: Retry = field(default_factory=Retry)

    @classmethod
    def of(
        cls, name: str, selection: Selection, to: str | None, columns: Mapping[str, Any], options: PurgeOptions
    ) -> Purge:
        check_known("a deletion" if to is None else "a move", options, PurgeOptions.__annotations__)
        who = f"reconciler {name!r}"
        if to is not None and to in selection.states:
            raise ConfigError(f"{who}: to={to!r} is one of its own states, so it would never end")
        for column in (*selection.table.key, selection.table.state):
            if column in columns:
                raise ConfigError(f"{who}: set= names {column!r}, which is the key or the state of the table; omit it")
        fraction = options.get("max_fraction")
        if fraction is not None and (
            isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1
        ):
            raise ConfigError(f"{who}: max_fraction={fraction!r}: a number above 0 and up to 1 is needed")
        deadline = options.get("deadline")
        every, on_demand = interval(who, options.get("every", "1m"))
        return cls(
            name=name,
            selection=selection,
            to=to,
            columns=columns,
            every=every,
            batch=whole(f"{who}: batch", options.get("batch", 1_000), MAX_BATCH),
            rate=rate_of(who, "rate", options.get("rate")),
            max_fraction=fraction,
            run_at_start=flag(f"{who}: run_at_start", options.get("run_at_start", False)),
            deadline=None if deadline is None else positive(who, "deadline", deadline),
            on_demand=on_demand,
            retry=retry_policy(f"{who}: retry", options.get("retry"), SHORT_RETRY),
        )

    @property
    def lane(self) -> str | None:
        return None if self.rate is None else lane(self.name)

    def declared(self) -> Mapping[str, Any]:
        return {
            "what": "delete" if self.to is None else f"move to {self.to}",
            "rows": str(self.selection),
            "every": None if self.on_demand else format_duration(self.every),
            "batch": self.batch,
            "rate": None if self.rate is None else str(self.rate),
            "max_fraction": self.max_fraction,
            "mode": "live",
        }
