"""The base of all events, an immutable value with a stable name; and how they get from the core to their subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class _Caused:
    """The exception behind an event. It is not a field: events are compared, shown and serialised without it."""

    __slots__ = ("_cause",)
    _cause: ExcInfo

    def because(self, error: BaseException | None, frames: TracebackType | None = None) -> Self:
        """This event with its exception; `frames` when the exception no longer has its traceback."""
        if error is not None:
            object.__setattr__(self, "_cause", (type(error), error, frames or error.__traceback__))
        return self

    @property
    def exc_info(self) -> ExcInfo | None:
        """What `logging` takes as `exc_info`, if an exception is behind this event."""
        return getattr(self, "_cause", None)

    @property
    def exception(self) -> BaseException | None:
        """The exception behind this event, with its traceback, if there is one."""
        cause = self.exc_info
        return None if cause is None else cause[1].with_traceback(cause[2])


@dataclass(frozen=True, slots=True)
class Event(_Caused):
    name: ClassVar[str]


log = logging.getLogger("trueup.events")

Subscriber = Callable[[Event], None]


class Events:
    """Passes each event to the subscribers of its class."""

    def __init__(self) -> None:
        self._all: list[Subscriber] = []
        self._by_class: dict[type[Event], list[Subscriber]] = {}
        self._wanted: dict[type[Event], tuple[Subscriber, ...]] = {}

    def subscribe(self, subscriber: Subscriber, *classes: type[Event]) -> Callable[[], None]:
        """Call `subscriber` with events of these classes (none: all). Returns a function that ends the subscription."""
        lists = [self._by_class.setdefault(cls, []) for cls in classes] or [self._all]
        for subscribers in lists:
            subscribers.append(subscriber)
        self._wanted.clear()

        def end() -> None:
            for subscribers in lists:
                if subscriber in subscribers:
                    subscribers.remove(subscriber)
            self._wanted.clear()

        return end

    def wants(self, cls: type[Event]) -> bool:
        """Whether there is a subscriber; saves building frequent events without one."""
        return bool(self._subscribers(cls))

    def emit(self, event: Event) -> None:
        for subscriber in self._subscribers(type(event)):
            try:
                subscriber(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                with suppress(Exception):  # a handler of logging may be what has failed; it must not end a loop of ours
                    log.exception("subscriber failed on %s", event.name)

    def _subscribers(self, cls: type[Event]) -> tuple[Subscriber, ...]:
        wanted = self._wanted.get(cls)
        if wanted is None:
            wanted = self._wanted[cls] = (*self._all, *self._by_class.get(cls, ()))
        return wanted
