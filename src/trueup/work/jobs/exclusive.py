"""Runs a schedule's function under a lease (`lease=`): while another instance holds the lease, the run is skipped.

The lease is held at most until shortly before the next tick. It is renewed in short steps, so a holder that died blocks the
others for a minute and not for a day.

When the server that keeps the lease cannot be reached, the run is postponed until it answers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args, get_type_hints

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError, DatabaseUnavailable, NotAcquired
from trueup.events import Events, RunHandledElsewhere, RunPostponed
from trueup.jobs.job import Tick
from trueup.jobs.outcome import RunSkipped, Snooze
from trueup.leases.backend import Backend
from trueup.leases.trust import MIN_LEASE, longest_hold
from trueup.schedules.spec import Spec
from trueup.work.leases.hold import Lease, LeaseRequest
from trueup.work.leases.lease import LeaseContext, check_key

STEP = timedelta(seconds=60)  # the length of one renewal, and so how long a dead holder blocks the others
ASK_AGAIN = timedelta(seconds=5)  # after the server that keeps the lease could not be reached
ELSEWHERE = "another instance is handling it"


@dataclass(frozen=True, slots=True)
class RunLease:
    """The lease that the runs of a schedule take. `most` is how long a run may hold it; None: until shortly before the next tick."""

    backend: Backend
    most: timedelta | None = None
    key: int | str | None = None
    step: timedelta = STEP

    @classmethod
    def of(
        cls, lease: Backend | None, ttl: Duration | None, key: int | str | None, step: Duration | None
    ) -> RunLease | None:
        """From the options of a declaration."""
        if lease is None:
            if ttl is not None or key is not None or step is not None:
                raise ConfigError("lease_ttl=, lease_step= and lease_key= need lease=")
            return None
        if lease not in get_args(Backend):
            raise ConfigError(f"lease={lease!r}: {', '.join(map(repr, get_args(Backend)))} or None")
        check_key("lease_key=", lease, key)
        most = None if ttl is None else _long_enough("lease_ttl", ttl)
        return cls(lease, most, key, STEP if step is None else _long_enough("lease_step", step))

    def request(self, tick: Tick, spec: Spec) -> LeaseRequest:
        """The lease for this tick's run. A retry waits for it: the holder that died may have been an earlier attempt of this run."""
        most = self.most
        if most is None:
            following = spec.next_after(tick.due_at)
            most = None if following is None else longest_hold(following - tick.due_at)
        step = self.step if most is None else min(self.step, most)
        return LeaseRequest(f"cron:{tick.schedule}", step, step if tick.attempt > 1 else None, most)


class Exclusive:
    """Wraps the functions of schedules. `hold` makes a LeaseContext when a run needs one."""

    def __init__(self, hold: Callable[[LeaseRequest, Backend, int | str | None], LeaseContext], events: Events) -> None:
        self._hold = hold
        self._events = events

    def wrap(self, function: Callable[..., Any], lease: RunLease, spec: Spec) -> Callable[..., Any]:
        """The function, run under the lease. The wrapped function always takes a Tick; called by hand without one, it takes no lease.

        A parameter of type Lease gets the lease that the run holds.
        """
        own, name = _parameter(function, Tick), "tick_of_lease"
        wanted = _parameter(function, Lease)

        def holding(kwargs: dict[str, Any]) -> tuple[Tick, LeaseContext] | None:
            tick = kwargs.pop(name, None) if own is None else kwargs.get(own)
            return None if tick is None else (tick, self._hold(lease.request(tick, spec), lease.backend, lease.key))

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            if (found := holding(kwargs)) is None:
                return await function(*args, **kwargs)
            async with AsyncExitStack() as stack:
                with self._unless_refused(found[0]):
                    lease = await stack.enter_async_context(found[1])
                return await function(*args, **kwargs, **({wanted: lease} if wanted else {}))

        @functools.wraps(function)
        def run_sync(*args: Any, **kwargs: Any) -> Any:
            if (found := holding(kwargs)) is None:
                return function(*args, **kwargs)
            with ExitStack() as stack:
                with self._unless_refused(found[0]):
                    lease = stack.enter_context(found[1])
                return function(*args, **kwargs, **({wanted: lease} if wanted else {}))

        wrapped: Callable[..., Any] = run if inspect.iscoroutinefunction(function) else run_sync
        _set_parameters(wrapped, function, added=None if own else name, removed=wanted)
        return wrapped

    @contextmanager
    def _unless_refused(self, tick: Tick) -> Iterator[None]:
        """Raises RunSkipped when another holder has the lease, and Snooze when it is not known whether it is held."""
        try:
            yield
        except DatabaseUnavailable as unknown:
            raise self._postponed(tick, str(unknown)) from None
        except NotAcquired as refused:
            if refused.unreachable:
                raise self._postponed(tick, refused.reason) from None
            raise self._elsewhere(tick, refused) from None

    def _postponed(self, tick: Tick, reason: str) -> Snooze:
        self._events.emit(RunPostponed(tick.schedule, tick.due_at.isoformat(), reason))
        return Snooze(ASK_AGAIN)

    def _elsewhere(self, tick: Tick, refused: NotAcquired) -> RunSkipped:
        """What to raise. One fenced statement then drops the job and marks its tick as skipped; after a lost claim it does neither."""
        self._events.emit(RunHandledElsewhere(tick.schedule, tick.due_at.isoformat(), refused.reason))
        return RunSkipped(f"{ELSEWHERE}: {refused.reason}", ELSEWHERE)


def asks_for_lease(function: Callable[..., Any]) -> bool:
    return _parameter(function, Lease) is not None


def _long_enough(option: str, duration: Duration) -> timedelta:
    length = duration_of(option, duration)
    if length < MIN_LEASE:
        raise ConfigError(f"{option}={duration!r} is too short; the minimum is one second")
    return length


def _parameter(function: Callable[..., Any], kind: type) -> str | None:
    try:
        hints = get_type_hints(function)
    except NameError:  # the declaration says what is wrong
        return None
    return next((name for name, hint in hints.items() if hint is kind and name != "return"), None)


def _set_parameters(wrapped: Any, function: Callable[..., Any], *, added: str | None, removed: str | None) -> None:
    """Give the wrapped function the signature that callers see: with a tick, and without the lease, which the wrapper passes."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != removed]
    wrapped.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if name != removed}
    if added is not None:
        parameters.append(inspect.Parameter(added, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Tick))
        wrapped.__annotations__[added] = Tick
    wrapped.__signature__ = signature.replace(parameters=parameters)
