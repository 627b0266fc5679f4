"""A schedule's function under a lease: while another instance has it, a run does not take place.

The lease is held for a little less than the time to the next tick at most, but renewed in short steps, so that a holder
that died blocks the others for a minute and not for a day.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args, get_type_hints

from trueup.durations import Duration, parse_duration
from trueup.errors import ConfigError, NotAcquired
from trueup.events import Events, RunHandledElsewhere
from trueup.jobs.outcome import Discard
from trueup.leases.length import SHORTEST, longest_hold
from trueup.schedules.spec import Spec
from trueup.store.pool import fetch_sync
from trueup.store.store import Store
from trueup.tick import Tick
from trueup.worker.hold import Wish
from trueup.worker.lease import Holding

Backend: TypeAlias = Literal["postgres", "advisory", "redis"]

STEP = timedelta(seconds=60)  # what is renewed at a time, and how long a dead holder is waited for
ELSEWHERE = "another instance is handling it"


@dataclass(frozen=True, slots=True)
class RunLease:
    """Which lease the runs of a schedule take. `most`: the longest one may be held; None: by the time to the next tick."""

    backend: Backend
    most: timedelta | None = None
    key: int | None = None

    @classmethod
    def of(cls, lease: Backend | None, ttl: Duration | None, key: int | None) -> RunLease | None:
        """From what people write."""
        if lease is None:
            if ttl is not None or key is not None:
                raise ConfigError("lease_ttl= and lease_key= need lease=")
            return None
        if lease not in get_args(Backend):
            raise ConfigError(f"lease={lease!r}: {', '.join(map(repr, get_args(Backend)))} or None")
        if key is not None and lease != "advisory":
            raise ConfigError("lease_key= is for lease='advisory'")
        most = None if ttl is None else parse_duration(ttl)
        if most is not None and most < SHORTEST:
            raise ConfigError(f"lease_ttl={ttl!r} is too short; a second is the least")
        return cls(lease, most, key)

    def wish(self, tick: Tick, spec: Spec) -> Wish:
        """The lease for this tick's run. A retry waits: the one who died may have been this very run."""
        most = self.most
        if most is None:
            following = spec.next_after(tick.due_at)
            most = None if following is None else longest_hold(following - tick.due_at)
        step = STEP if most is None else min(STEP, most)
        return Wish(f"cron:{tick.schedule}", step, step if tick.attempt > 1 else None, most)


class Exclusive:
    """Wraps the functions of schedules. `hold` makes a Holding, `store` gives the store, both only when a run needs them."""

    def __init__(
        self, hold: Callable[[Wish, Backend, int | None], Holding], store: Callable[[], Store], events: Events
    ) -> None:
        self._hold = hold
        self._store = store
        self._events = events

    def wrap(self, function: Callable[..., Any], lease: RunLease, spec: Spec) -> Callable[..., Any]:
        """The function under the lease. It takes a Tick in any case; called by hand, without one, it is the function itself."""
        own, name = _tick_parameter(function), "tick_of_lease"

        def holding(kwargs: dict[str, Any]) -> tuple[Tick, Holding] | None:
            tick = kwargs.pop(name, None) if own is None else kwargs.get(own)
            return None if tick is None else (tick, self._hold(lease.wish(tick, spec), lease.backend, lease.key))

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            if (found := holding(kwargs)) is None:
                return await function(*args, **kwargs)
            async with AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(found[1])
                except NotAcquired as refused:
                    await self._store().schedules.skip_tick(found[0].schedule, found[0].due_at, ELSEWHERE)
                    raise self._elsewhere(found[0], refused) from None
                return await function(*args, **kwargs)

        @functools.wraps(function)
        def run_sync(*args: Any, **kwargs: Any) -> Any:
            if (found := holding(kwargs)) is None:
                return function(*args, **kwargs)
            with ExitStack() as stack:
                try:
                    stack.enter_context(found[1])
                except NotAcquired as refused:
                    self._skip_sync(found[0])
                    raise self._elsewhere(found[0], refused) from None
                return function(*args, **kwargs)

        wrapped: Callable[..., Any] = run if inspect.iscoroutinefunction(function) else run_sync
        if own is None:
            _add_parameter(wrapped, function, name)
        return wrapped

    def _skip_sync(self, tick: Tick) -> None:
        store = self._store()
        params = {"name": tick.schedule, "due_at": tick.due_at, "reason": ELSEWHERE}
        with store.sync_pool.use() as connection:
            fetch_sync(connection, store.statements["schedules/skip_tick"], params)

    def _elsewhere(self, tick: Tick, refused: NotAcquired) -> Discard:
        self._events.emit(RunHandledElsewhere(tick.schedule, tick.due_at.isoformat(), refused.reason))
        return Discard(f"{ELSEWHERE}: {refused.reason}")


def _tick_parameter(function: Callable[..., Any]) -> str | None:
    try:
        hints = get_type_hints(function)
    except NameError:  # the declaration says what is wrong
        return None
    return next((name for name, hint in hints.items() if hint is Tick and name != "return"), None)


def _add_parameter(wrapped: Any, function: Callable[..., Any], name: str) -> None:
    """Let the wrapped function be given its tick, though the function itself does not ask for it."""
    signature = inspect.signature(function)
    added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Tick)
    wrapped.__signature__ = signature.replace(parameters=[*signature.parameters.values(), added])
    wrapped.__annotations__ = {**function.__annotations__, name: Tick}
