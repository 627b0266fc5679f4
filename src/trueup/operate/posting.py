"""Posts to a URL of the user's; failures there do not stop the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trueup.events import Events, ServiceFailed
from trueup.texts import describe, type_name

Post = Callable[[Mapping[str, Any], str], Awaitable[object]]
"""Posts a document with an idempotency key; raises when it was not accepted."""


class Reported:
    """Posts, and reports the first, second, fourth, … failure in a row. True when the document was accepted."""

    def __init__(self, post: Post, events: Events, name: str) -> None:
        self._post = post
        self._events = events
        self._name = name
        self._failures = 0

    async def __call__(self, document: Mapping[str, Any], key: str) -> bool:
        try:
            await self._post(document, key)
        except Exception as error:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:
                self._events.emit(ServiceFailed(self._name, type_name(error), describe(error), self._failures))
            return False
        self._failures = 0
        return True
