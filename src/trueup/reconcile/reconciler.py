"""A declared reconciler: which rows it processes, which function it calls for each, and what happens to rows that fail."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict, get_args

from trueup.backoff import SHORT_RETRY, Retry, retry_policy
from trueup.durations import Duration, Rate, duration_of, format_duration
from trueup.errors import ConfigError
from trueup.options import check_known, flag, naming, whole
from trueup.reconcile.handler import RowHandler
from trueup.reconcile.outcome import Delete, Failed, Outcome, Stay, To
from trueup.reconcile.selection import Selection

ClaimMode = Literal["lease", "row_lock"]
Mode = Literal["live", "shadow"]
AfterFailure = To | Stay | Callable[[Any, Failed], To | Stay | None]
PauseOn = Literal["same", "any"]
PauseBy = str | Callable[[Any], object]
Exhausted = To | Stay | Delete | Callable[[Any, Failed], Outcome | None]

MIN_LEASE = timedelta(seconds=1)
MAX_BATCH = 10_000
MAX_CONCURRENCY = 1_000


class ReconcileOptions(TypedDict, total=False):
    """How often rows are processed, and how.

    Every worker sweeps at the interval `every` (None: only on request, by `app.reconcilers.run`), with `batch` rows per claim and up to
    `concurrency` handlers at a time. `claim="lease"` holds a row by a lease of `lease_for`, which is renewed while its handler runs, up
    to `timeout`. `claim="row_lock"` holds it by a lock on the row, in a transaction that the handler gets as `tx`.

    A row that fails is tried again as `retry` says; `failed` is written to it meanwhile. After its last attempt it is quarantined, or
    treated as `exhausted` says. A row that stays as it was is looked at again after `revisit` (by default `every`). `rate` holds for the
    whole fleet (`canary` is an older name for a second rate).

    After `pause_after` failures of the same kind in a row, the circuit breaker opens for `pause_for`, then for longer; its rows spend no
    attempts. With `pause_by`, a column or a function of the row, only rows with the same value pause. `pause_on="any"` counts failures
    for any reason, refusals by the handler included, of different rows without a success in between. `deadline` ends a sweep.
    `mode="shadow"` changes nothing.
    """

    name: str | None
    every: Duration | None
    batch: int
    concurrency: int
    claim: ClaimMode
    lease_for: Duration
    retry: Retry | None
    failed: AfterFailure | None
    exhausted: Exhausted | None
    rate: str | Rate | None
    canary: str | Rate | None
    revisit: Duration | None
    run_at_start: bool
    deadline: Duration | None
    timeout: Duration
    pause_after: int | None
    pause_for: Duration
    pause_by: PauseBy | None
    pause_on: PauseOn
    mode: Mode


@dataclass(frozen=True, slots=True)
class Reconciler:
    name: str
    selection: Selection
    handler: RowHandler
    every: timedelta
    batch: int
    concurrency: int
    claim: ClaimMode
    lease_for: timedelta
    retry: Retry
    failed: AfterFailure | None
    exhausted: Exhausted | None
    rate: Rate | None
    revisit: timedelta
    run_at_start: bool
    deadline: timedelta | None
    timeout: timedelta
    pause_after: int | None
    pause_for: timedelta
    mode: Mode
    pause_by: PauseBy | None = None
    pause_on: PauseOn = "same"
    on_demand: bool = False  # no worker sweeps by itself

    @classmethod
    def of(cls, name: str, selection: Selection, handler: RowHandler, options: ReconcileOptions) -> Reconciler:
        """Raises ConfigError naming what cannot be."""
        check_known("a reconciler", options, ReconcileOptions.__annotations__)
        who = f"reconciler {name!r}"
        every, on_demand = interval(who, options.get("every", "1m"))
        revisit = options.get("revisit")
        deadline = options.get("deadline")
        claim = _one_of(who, "claim", options.get("claim", "lease"), get_args(ClaimMode))
        mode = _one_of(who, "mode", options.get("mode", "live"), get_args(Mode))
        lease_for = positive(who, "lease_for", options.get("lease_for", "30s"))
        if lease_for < MIN_LEASE:
            raise ConfigError(f"{who}: lease_for={format_duration(lease_for)} is too short; the minimum is one second")
        _check_claim(who, claim, mode, selection, handler)
        return cls(
            name=name,
            selection=selection,
            handler=handler,
            every=every,
            batch=whole(f"{who}: batch", options.get("batch", 100), MAX_BATCH),
            concurrency=whole(f"{who}: concurrency", options.get("concurrency", 10), MAX_CONCURRENCY),
            claim=claim,  # type: ignore[arg-type]
            lease_for=lease_for,
            retry=retry_policy(f"{who}: retry", options.get("retry"), SHORT_RETRY),
            failed=_failed(who, options.get("failed"), selection),
            exhausted=_exhausted(who, options.get("exhausted")),
            rate=slower(rate_of(who, "rate", options.get("rate")), _canary(who, options.get("canary"))),
            revisit=every if revisit is None else duration_of(f"{who}: revisit", revisit),
            run_at_start=flag(f"{who}: run_at_start", options.get("run_at_start", False)),
            deadline=None if deadline is None else positive(who, "deadline", deadline),
            timeout=positive(who, "timeout", options.get("timeout", "5m")),
            pause_after=None
            if (pause_after := options.get("pause_after")) is None
            else whole(f"{who}: pause_after", pause_after),
            pause_for=positive(who, "pause_for", options.get("pause_for", "30s")),
            mode=mode,  # type: ignore[arg-type]
            pause_by=_pause_by(who, options.get("pause_by"), handler),
            pause_on=_one_of(who, "pause_on", options.get("pause_on", "same"), get_args(PauseOn)),  # type: ignore[arg-type]
            on_demand=on_demand,
        )

    @property
    def lane(self) -> str | None:
        """The lane by which the fleet shares the rate; None without a rate."""
        return None if self.rate is None else lane(self.name)

    def declared(self) -> Mapping[str, Any]:
        """The description that is stored for people."""
        return {
            "what": "reconcile",
            "rows": str(self.selection),
            "every": None if self.on_demand else format_duration(self.every),
            "batch": self.batch,
            "concurrency": self.concurrency,
            "claim": self.claim,
            "lease_for": format_duration(self.lease_for),
            "max_attempts": self.retry.max_attempts,
            "revisit": format_duration(self.revisit),
            "rate": None if self.rate is None else str(self.rate),
            "mode": self.mode,
            "pause_after": self.pause_after,
            "pause_on": self.pause_on,
            "pause_by": self.pause_by if isinstance(self.pause_by, str) else getattr(self.pause_by, "__name__", None),
        }


def _check_claim(who: str, claim: str, mode: str, selection: Selection, handler: RowHandler) -> None:
    """Raises ConfigError for what this kind of claim cannot do."""
    if claim == "row_lock" and (selection.claimed_as is not None or selection.table.lease_columns is not None):
        raise ConfigError(
            f"{who}: claim='row_lock' holds the row by its lock; claimed_as= and lease_columns= are for claim='lease'"
        )
    if handler.tx is not None and claim != "row_lock" and mode != "shadow":
        raise ConfigError(
            f"{who}: its handler asks for tx, which only claim='row_lock' gives; with leases, use ctx.transaction(outcome)"
        )


def _failed(who: str, failed: AfterFailure | None, selection: Selection) -> AfterFailure | None:
    if failed is not None and not isinstance(failed, To | Stay) and not callable(failed):
        raise ConfigError(f"{who}: failed={failed!r}: To, Stay or a function of row and Failed is needed")
    if isinstance(failed, To) and failed.state not in selection.states:
        raise ConfigError(
            f"{who}: failed={failed!r}: rows in that state would never be retried; use one of the reconciler's states"
        )
    return failed


def _exhausted(who: str, exhausted: Exhausted | None) -> Exhausted | None:
    if exhausted is not None and not isinstance(exhausted, To | Stay | Delete) and not callable(exhausted):
        raise ConfigError(f"{who}: exhausted={exhausted!r}: To, Stay, Delete or a function of row and Failed is needed")
    return exhausted


def _pause_by(who: str, by: object, handler: RowHandler) -> PauseBy | None:
    if by is None or callable(by):
        return by
    if not isinstance(by, str) or not by:
        raise ConfigError(f"{who}: pause_by={by!r}: a column, or a function of the row that gives a key, is needed")
    columns = handler.shape.columns
    if columns is not None and by not in columns:
        raise ConfigError(f"{who}: pause_by={by!r}: its handler's rows have no such column; add it, or give a function")
    return by


def _canary(who: str, rate: str | Rate | None) -> Rate | None:
    if rate is not None:
        said = f"{who}: canary= is deprecated, because it is only a second rate; set rate= to the slower of both"
        warnings.warn(said, DeprecationWarning, stacklevel=5)
    return rate_of(who, "canary", rate)


def lane(name: str) -> str:
    return f"rows:{name}"


def rate_of(who: str, option: str, rate: str | Rate | None) -> Rate | None:
    with naming(f"{who}: {option}"):
        return None if rate is None else Rate.parse(rate)


def slower(*rates: Rate | None) -> Rate | None:
    """The slowest of those that are given."""
    given = [rate for rate in rates if rate is not None]
    return max(given, key=lambda rate: rate.spacing, default=None)


def positive(who: str, option: str, value: Duration) -> timedelta:
    duration = duration_of(f"{who}: {option}", value)
    if not duration:
        raise ConfigError(f"{who}: {option}=: must be longer than 0")
    return duration


def interval(who: str, every: Duration | None) -> tuple[timedelta, bool]:
    """How often, and whether only on demand; then a minute is what a long sweep counts by."""
    return (timedelta(minutes=1), True) if every is None else (positive(who, "every", every), False)


def _one_of(who: str, option: str, value: str, words: tuple[str, ...]) -> str:
    if value not in words:
        raise ConfigError(f"{who}: {option}={value!r}: {' or '.join(map(repr, words))} is needed")
    return value
