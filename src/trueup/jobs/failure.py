"""A failed attempt, as text that can always be stored."""

from __future__ import annotations

import os
import socket
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol
from uuid import UUID

import orjson

from trueup.texts import MAX_MESSAGE, MAX_TRACEBACK, clean, describe, type_name, without_contents

__all__ = ["MAX_ERRORS", "MAX_MESSAGE", "MAX_TRACEBACK", "Failure", "clean", "describe", "type_name"]

MAX_ERRORS = 25  # kept per job: the first and the latest
MAX_HOST = 255  # characters
MAX_CAUSES = 50  # of a chain; formatting one that a loop keeps extending takes seconds
MAX_IN_GROUP = 15  # errors: as many as Python prints, after it has formatted all of them
MAX_NOTES = 20  # of an error
MAX_NARROWED = 200  # errors, with those of groups within groups: Python prints less of them


class UnreadableError(Exception):
    """Stands for an exception that raises when it is asked for its type, its causes or its traceback."""

    @classmethod
    def of(cls, error: BaseException) -> UnreadableError:
        name = type.__getattribute__(type(error), "__qualname__")
        return cls(f"the handler raised {name}, whose type, causes or traceback cannot be read")


def can_be_told(error: BaseException) -> bool:
    """Whether all attributes of an exception that are needed can be read. Cuts its chain of causes after the latest ones."""
    try:
        cls = type(error)
        f"{cls.__module__}.{cls.__qualname__} {cls.__name__} {error.__class__}"
        error.__traceback__ = error.__traceback__
        _cut_causes(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False
    return True


def _cut_causes(error: BaseException) -> None:
    seen: set[int] = set()
    last: BaseException | None = error
    while last is not None and id(last) not in seen:
        if len(seen) == MAX_CAUSES:
            last.__cause__ = last.__context__ = None
            return
        seen.add(id(last))
        last = last.__cause__ or last.__context__


def narrowed(error: BaseException, known: dict[int, BaseException] | None = None) -> BaseException:
    """The error without most of the errors of a large group: `asyncio.TaskGroup` makes them when the network is away.

    Causes and contexts that are such groups are replaced; notes beyond the first ones are removed.
    """
    known = {} if known is None else known
    if id(error) in known or len(known) > MAX_NARROWED:
        return known.get(id(error), error)
    known[id(error)] = error  # while it is under way: it may be the cause of what is in it
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        del notes[MAX_NOTES:]
    _cut_causes(error)
    if error.__cause__ is not None:
        error.__cause__ = narrowed(error.__cause__, known)  # also says that the context is not shown
    elif error.__context__ is not None and not error.__suppress_context__:
        error.__context__ = narrowed(error.__context__, known)
    if isinstance(error, BaseExceptionGroup):
        known[id(error)] = few = _first_of(error, known)
        return few
    return error


def _first_of(group: BaseExceptionGroup[Any], known: dict[int, BaseException]) -> BaseExceptionGroup[Any]:
    # A group that is in several groups is kept once: Python would format it each time, and that grows exponentially.
    kept = [
        narrowed(each, known)
        for each in group.exceptions[:MAX_IN_GROUP]
        if not (isinstance(each, BaseExceptionGroup) and id(each) in known)
    ] or [ValueError("all that is in this group is also in another one")]
    few = BaseExceptionGroup.__new__(type(group), group.message, kept)
    if (left := len(group.exceptions) - len(kept)) > 0:
        few.add_note(f"and {left:,} more errors of this group")
    for note in getattr(group, "__notes__", ()):
        few.add_note(note)
    few.__traceback__, few.__cause__, few.__context__ = group.__traceback__, group.__cause__, group.__context__
    few.__suppress_context__ = group.__suppress_context__
    return few


class ClaimedWork(Protocol):
    """The claim that an attempt was made under: a claimed job or row."""

    @property
    def holder(self) -> UUID: ...
    @property
    def term(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as it is kept with the job."""

    attempt: int
    type: str
    message: str
    traceback: str
    # For events in this process: the exception, and the frames from the handler on. They are kept apart from it, because a
    # handler's frames often hold the exception, and each failure would be a cycle.
    error: BaseException | None = field(default=None, compare=False, repr=False)
    frames: TracebackType | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, error: BaseException, attempt: int) -> Failure:
        frames = from_the_handler(error.__traceback__)
        return cls(attempt, type_name(error), describe(error), traceback_text(error, frames), error, frames)

    def to_json(self, claim: ClaimedWork | None = None) -> str:
        """As it is kept: the failure, the process and the claim that it happened under. For people; it decides nothing."""
        record = {
            "attempt": self.attempt,
            "at": datetime.now(UTC),  # the process's own clock
            "type": self.type,
            "message": self.message,
            "host": clean(socket.gethostname(), MAX_HOST),
            "pid": os.getpid(),
        }
        if claim is not None:
            record |= {"holder": claim.holder, "term": claim.term}
        if self.traceback:
            record["traceback"] = self.traceback
        return orjson.dumps(record).decode()


def traceback_text(error: BaseException, frames: TracebackType | None) -> str:
    """The traceback as text that can be stored and shown: bounded, and with its secrets masked."""
    if frames is None:
        return ""
    try:
        error = narrowed(error)
        lines = traceback.format_exception(type(error), error, frames, limit=-30, chain=True)
        text = without_contents("".join(lines), error).rstrip()
        return clean(f"{text}\n", MAX_TRACEBACK)  # with its last line ended, as Python and Django's tasks have it
    except KeyboardInterrupt:
        raise
    except BaseException:  # a __str__ that raises, a chain that loops: keep the frames at least
        return clean("".join(traceback.format_tb(frames, limit=-30)), MAX_TRACEBACK)


def taken_frames(error: BaseException) -> TracebackType | None:
    """The frames from the handler on, taken off the error: a handler's frames often hold it, and each failure would be a cycle."""
    frames = from_the_handler(error.__traceback__)
    error.__traceback__ = None
    return frames


def from_the_handler(frames: TracebackType | None) -> TracebackType | None:
    """Without the frames of the worker that called the handler: they are the same for every failure."""
    inner = frames
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith("trueup.work."):
        inner = inner.tb_next
    return inner or frames
