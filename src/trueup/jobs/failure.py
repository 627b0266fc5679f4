"""An error as text that can always be stored: cleaned of what PostgreSQL refuses, cut to size, secrets masked."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType

import orjson

from trueup.dsn import mask

MOST_MESSAGE = 2_000  # characters; enough for a SQL error with its context
MOST_TRACEBACK = 8_000
MOST_READ = 64_000  # of a text, before anything else is done with it
MOST_ERRORS = 25  # kept per job: the first and the latest


def clean(text: str, most: int) -> str:
    """Text that JSON in PostgreSQL can hold: no NUL, no lone surrogates, at most `most` characters, passwords masked."""
    if len(text) > MOST_READ:
        # Masking half a URL may miss its password, so the second half starts after a blank.
        start = text.find(" ", len(text) - MOST_READ // 2)
        text = f"{text[: MOST_READ // 2]} …{text[start:] if start > 0 else ''}"
    text = mask(text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode("utf-8"))
    if len(text) > most:
        text = f"{text[: most // 2]} … {len(text) - most} characters left out … {text[-(most - most // 2) :]}"
    return text


def describe(error: BaseException) -> str:
    """`str(error)`, also when that raises."""
    try:
        return clean(str(error), MOST_MESSAGE)
    except Exception as broken:
        return f"<{type(error).__name__} whose text cannot be had: {type(broken).__name__}>"


def type_name(error: BaseException) -> str:
    cls = type(error)
    return cls.__qualname__ if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__}.{cls.__qualname__}"


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as it is kept with the job."""

    attempt: int
    type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException, attempt: int) -> Failure:
        return cls(attempt, type_name(error), describe(error), _traceback(error))

    def to_json(self) -> str:
        # The process's own clock: shown to people, decides nothing.
        record = {"attempt": self.attempt, "at": datetime.now(UTC), "type": self.type, "message": self.message}
        if self.traceback:
            record["traceback"] = self.traceback
        return orjson.dumps(record).decode()


def _traceback(error: BaseException) -> str:
    frames = _from_the_handler(error.__traceback__)
    if frames is None:
        return ""
    try:
        lines = traceback.format_exception(type(error), error, frames, limit=-30, chain=True)
        return clean("".join(lines), MOST_TRACEBACK)
    except Exception:  # a __str__ that raises, a chain that loops: the frames alone are still worth having
        return clean("".join(traceback.format_tb(frames, limit=-30)), MOST_TRACEBACK)


def _from_the_handler(frames: TracebackType | None) -> TracebackType | None:
    """Without the frames of the worker that called the handler: they are the same for every failure."""
    inner = frames
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").startswith("trueup.worker."):
        inner = inner.tb_next
    return inner or frames
