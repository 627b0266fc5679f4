"""How often a failed attempt is tried again, and when. The policy is pure; `call` applies it inside a handler."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from inspect import isawaitable
from typing import Any, TypeVar

from trueup.clock import deadline, elapsed
from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError, Final
from trueup.options import advised_init, wrong

R = TypeVar("R")
_random = random.Random()  # noqa: S311 - jitter

MAX_ATTEMPTS = 10_000  # beyond this the user means "forever", which hides a job that cannot succeed


class _DefaultNumber(int):
    """The default of a number option; marks it as not given."""


class _DefaultLength(timedelta):
    """The default of a duration option; marks it as not given."""


_ATTEMPTS, _FACTOR = _DefaultNumber(4), _DefaultNumber(2)
_FIRST, _CAP = _DefaultLength(seconds=1), _DefaultLength(seconds=30)


@advised_init("a Retry")
@dataclass(frozen=True)
class Retry:
    """Up to `max_attempts` tries: wait `first` after the first failure, `factor` times longer after each, never above `cap`.

    An omitted option keeps the default of the kind of work: 20 attempts with a cap of an hour
    for jobs, 4 attempts with a cap of 30 s for ticks, rows and calls; 1 s and a factor of 2 for all of them.

    `jitter` draws each wait evenly from 0 to its full length. It is on, unless `first`, `factor` or `cap` is given: then delays
    are exact.
    `retry_on` names the errors worth another attempt (default: all), `give_up_on` those that are not; the latter wins.
    """

    max_attempts: int = _ATTEMPTS
    first: Duration = _FIRST
    factor: float = _FACTOR
    cap: Duration = _CAP
    jitter: bool | None = None
    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    give_up_on: tuple[type[BaseException], ...] = ()
    _first: timedelta = field(init=False, repr=False, compare=False)
    _cap: timedelta = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (
            isinstance(self.max_attempts, bool)
            or not isinstance(self.max_attempts, int)
            or not 1 <= self.max_attempts <= MAX_ATTEMPTS
        ):
            raise ConfigError(
                f"Retry(max_attempts={self.max_attempts!r}): a whole number from 1 to {MAX_ATTEMPTS} is needed"
            )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not self.factor >= 1:
            raise ConfigError(
                f"Retry(factor={self.factor!r}): it must be a number of at least 1, or delays would shrink"
            )
        if self.jitter is not None and not isinstance(self.jitter, bool):
            raise wrong("Retry: jitter", self.jitter, "True or False")
        if self.jitter is None:
            object.__setattr__(self, "jitter", all(map(_is_default, (self.first, self.factor, self.cap))))
        object.__setattr__(self, "_first", duration_of("Retry: first", self.first))
        object.__setattr__(self, "_cap", duration_of("Retry: cap", self.cap))
        for name in ("retry_on", "give_up_on"):
            kinds = getattr(self, name)
            kinds = kinds if isinstance(kinds, tuple) else (kinds,)
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
                raise ConfigError(f"Retry({name}={kinds!r}): it must be an exception class or a tuple of them")
            object.__setattr__(self, name, kinds)

    def with_defaults(self, defaults: Retry) -> Retry:
        """This policy with the number of attempts and the cap of `defaults` where none was given."""
        return replace(
            self,
            max_attempts=defaults.max_attempts if _is_default(self.max_attempts) else self.max_attempts,
            cap=defaults.cap if _is_default(self.cap) else self.cap,
        )

    def delay(self, attempt: int) -> timedelta:
        """How long to wait after the failed attempt number `attempt` (the first is 1), before jitter."""
        if not self._first:  # zero times a factor that overflows would give the cap
            return self._first
        try:
            seconds = self._first.total_seconds() * self.factor ** (attempt - 1)
        except OverflowError:
            return self._cap
        return min(timedelta(seconds=min(seconds, self._cap.total_seconds())), self._cap)

    def wait(self, attempt: int, random: random.Random) -> timedelta:
        """The delay to use, with jitter when it is on."""
        delay = self.delay(attempt)
        return delay * random.random() if self.jitter else delay

    async def call(self, function: Callable[..., Awaitable[R] | R], /, *args: Any, **kwargs: Any) -> R:
        """Call a function inside a handler, and again as this says when it raises; the last error is raised.

        A cancellation, `GiveUp`, `Snooze`, `Discard` and a lost claim propagate immediately. A wait that would outlast the
        handler's timeout does not begin: the error of the call is raised, not a timeout.
        """
        attempt = 1
        while True:
            try:
                result = function(*args, **kwargs)
                return await result if isawaitable(result) else result
            except Exception as error:
                wait = self._wait_to_call_again(error, attempt)
                if wait is None:
                    raise
            await asyncio.sleep(wait)
            attempt += 1

    def call_sync(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """`call` for handlers that run in a thread."""
        attempt = 1
        while True:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                wait = self._wait_to_call_again(error, attempt)
                if wait is None:
                    raise
            time.sleep(wait)
            attempt += 1

    def _wait_to_call_again(self, error: Exception, attempt: int) -> float | None:
        """Seconds to wait; None when no attempt is left."""
        if isinstance(error, Final) or not self.worth_retrying(error) or attempt >= self.max_attempts:
            return None
        seconds = self.wait(attempt, _random).total_seconds()
        ends_at = deadline.get()
        return None if ends_at is not None and elapsed() + seconds >= ends_at else seconds

    def worth_retrying(self, error: BaseException) -> bool:
        return isinstance(error, self.retry_on) and not isinstance(error, self.give_up_on)


def retry_policy(option: str, given: object, defaults: Retry) -> Retry:
    """The policy that an option is given, with these defaults. Raises ConfigError for anything but a Retry or None."""
    if given is None:
        return defaults
    if not isinstance(given, Retry):
        raise wrong(option, given, "a Retry, such as Retry(max_attempts=5),")
    return given.with_defaults(defaults)


def _is_default(value: object) -> bool:
    return isinstance(value, _DefaultNumber | _DefaultLength)


JOB_RETRY = Retry(max_attempts=20, cap=timedelta(hours=1), jitter=True)
"""The default of jobs: 20 attempts over eight hours at most, four on average."""

SHORT_RETRY = Retry(max_attempts=4, cap=timedelta(seconds=30), jitter=True)
"""The default of ticks, rows and calls inside handlers, which something else soon follows: the next tick, sweep or attempt."""
