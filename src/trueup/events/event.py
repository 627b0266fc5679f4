"""The base of all events: an immutable value with a stable name."""

from __future__ import annotations

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
