"""Log lines for the processes that trueup itself starts: JSON for machines, or aligned text for people."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from time import monotonic
from types import TracebackType
from typing import Any, TextIO

import orjson

from trueup.config import Settings
from trueup.masking import MASK, is_secret_name
from trueup.observe.logs import LOGGER, Message
from trueup.observe.printable import printable, printable_json, printable_lines
from trueup.texts import MAX_FACT, clean, clean_fact

# The attributes of every record; others are facts from `extra=`.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

UNCAUGHT = "py.uncaught"  # a logger beside Python's own "py.warnings"
DRIVER_EVERY = 60.0  # seconds
MAX_KINDS = 1_000  # kinds of records that are remembered
_MESSAGE_WIDTH = 20  # fits most messages; a longer one moves its fields to the right
_INDENT = " " * 4  # of stacks, so that no line of foreign text starts in the first column
_RESET, _DIM = "\x1b[0m", "\x1b[2m"
_LEVEL_COLOURS = {"DEBUG": "\x1b[2m", "INFO": "\x1b[32m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m"}


def configure_logging(settings: Settings, stream: TextIO | None = None, *, logger_name: str = LOGGER) -> None:
    """Write a logger's records (`trueup`'s) to `stream` (standard error), as `log_format` and `log_level` say.

    For programs whose process is trueup's own. Records do not propagate to the root logger, or an application that configured it
    would see each of them twice. If the application has put a handler of its own on the logger, only a level that was never set
    is set. A second call replaces the first.
    """
    logger = logging.getLogger(logger_name)
    ours = [handler for handler in logger.handlers if isinstance(handler, LinesHandler)]
    theirs = [handler for handler in logger.handlers if not isinstance(handler, LinesHandler | logging.NullHandler)]
    if theirs:
        if logger.level == logging.NOTSET:
            logger.setLevel(settings.log_level.upper())
        return
    for handler in ours:
        logger.removeHandler(handler)
    logger.addHandler(LinesHandler(settings.log_format, stream or sys.stderr))
    logger.setLevel(settings.log_level.upper())
    logger.propagate = False
    if logger_name == LOGGER:
        _configure_driver(settings, stream or sys.stderr)
        _configure_others(settings, stream or sys.stderr)


def _configure_others(settings: Settings, stream: TextIO) -> None:
    """Lines of the application and of other libraries look like ours, unless the application handles them. So do Python's warnings
    and errors that nothing catches where our lines are JSON."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, LinesHandler)]:
        root.removeHandler(handler)
    lines = LinesHandler(settings.log_format, stream)
    if not root.handlers:
        root.addHandler(lines)
        if isinstance(lines.formatter, JsonLines):
            logging.captureWarnings(True)
            _capture_errors()


def _capture_errors() -> None:
    """Make a record of an error that ends the program or a thread, or that a destructor raises; Python would print many lines. An
    application's own hooks stay."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda kind, error, trace: _uncaught("the program ended", kind, error, trace)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _thread_ended
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = lambda why: _uncaught(
            f"{why.err_msg or 'ignored'}: {why.object!r}", why.exc_type, why.exc_value, why.exc_traceback
        )


def _thread_ended(why: threading.ExceptHookArgs) -> None:
    if why.exc_type is not SystemExit:  # which ends a thread silently
        name = "a thread" if why.thread is None else f"thread {why.thread.name}"
        _uncaught(f"{name} ended", why.exc_type, why.exc_value, why.exc_traceback)


def _uncaught(
    message: str, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    logging.getLogger(UNCAUGHT).error("%s: %s", message, kind.__qualname__, exc_info=(kind, error or kind(), trace))


def _configure_driver(settings: Settings, stream: TextIO) -> None:
    """psycopg and its pool log a warning for each failed connection: write these as lines like ours, one per kind and minute."""
    logger = logging.getLogger("psycopg")
    if any(not isinstance(handler, LinesHandler | logging.NullHandler) for handler in logger.handlers):
        return
    for handler in [handler for handler in logger.handlers if isinstance(handler, LinesHandler)]:
        logger.removeHandler(handler)
    lines = LinesHandler(settings.log_format, stream)
    lines.addFilter(NowAndThen(DRIVER_EVERY))
    logger.addHandler(lines)
    logger.propagate = False


class NowAndThen(logging.Filter):
    """One record of a kind (logger, level and template) per `seconds`; it says how many were left out before it."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, record.levelno, str(record.msg)[:200])
        now = monotonic()
        last, left_out = self._kinds.get(kind, (-inf, 0))
        if now - last < self._seconds:
            self._kinds[kind] = (last, left_out + 1)
            return False
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        if left_out:
            record.left_out = left_out
        return True


class LinesHandler(logging.StreamHandler[TextIO]):
    def __init__(self, log_format: str, stream: TextIO) -> None:
        super().__init__(stream)
        on_terminal = stream.isatty()
        console = log_format == "console" or (log_format == "auto" and on_terminal)
        colour = on_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.setFormatter(ConsoleLines(colour=colour) if console else JsonLines())


class JsonLines(logging.Formatter):
    """One JSON object per record, always on one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        own = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        trace = _trace(self, record)
        below = {"traceback": trace} if trace else {}
        # Twice: the first sets the order, the last overrides a fact of the same name.
        return printable_json(_encode({**own, **facts_of(record), **below, **own}))


class ConsoleLines(logging.Formatter):
    """`12:00:00.123 WARN  job retried  job_id=7 kind=send …`, and stacks indented below."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        facts = facts_of(record)
        facts.pop("event_name", None)  # the message says the same
        below = [text for text in (facts.pop("stack", ""), _trace(self, record)) if text]
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        message = printable(_message(record))
        fields = " ".join(f"{self._dim(name + '=')}{_shown(value)}" for name, value in facts.items())
        line = f"{self._dim(moment)} {self._level(record.levelname)} {message:{_MESSAGE_WIDTH}} {fields}".rstrip()
        return "\n".join([line, *(printable_lines(str(text), _INDENT) for text in below)])

    def _level(self, name: str) -> str:
        colour = _LEVEL_COLOURS.get(name, "") if self._colour else ""
        shown = {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(name, name)
        return f"{colour}{shown:5}{_RESET if colour else ''}"

    def _dim(self, text: str) -> str:
        return f"{_DIM}{text}{_RESET}" if self._colour else text


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The facts that `extra=` gave the record, with secrets masked. A field with the name of a secret is hidden as a whole."""
    given = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
    return {
        name: MASK if is_secret_name(name) and not isinstance(value, bool | None) else clean_fact(value)
        for name, value in given.items()
    }


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [record.exc_text or formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return clean("\n".join(parts), MAX_FACT) if parts else ""


def _message(record: logging.LogRecord) -> str:
    """The record's text; the template alone if the arguments do not fit it, so that a library's mistake does not lose the
    line."""
    if isinstance(record.msg, Message):
        return record.msg.constant
    try:
        return str(clean_fact(record.getMessage()))
    except Exception:
        return str(clean_fact(str(record.msg)))


def _encode(fields: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(fields, default=str).decode()
    except TypeError:  # half a surrogate pair, an integer beyond 64 bits: the slow encoder has no such limits
        return json.dumps(fields, default=str)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{round(value, 3):.12g}"
    if isinstance(value, list | tuple | set | frozenset):
        return _shown(",".join(map(str, value)))
    text = printable(str(value))
    needs_quotes = not text or any(character in text for character in ' "=')
    return '"{}"'.format(text.replace('"', r"\"")) if needs_quotes else text
