"""How events get from the core to their subscribers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from trueup.events.event import Event

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
