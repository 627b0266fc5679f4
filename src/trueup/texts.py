"""Errors and other foreign texts, made fit to be stored, logged and shown: valid, of a bounded size, secrets masked.

PostgreSQL's DETAIL and CONTEXT about a refused row quote the row. People who read errors may not be allowed to read the
table, so only the message itself is kept, with the constraint's name and the SQLSTATE. A message about a value that cannot be
read (`invalid input syntax for type integer: "…"`) quotes that value, which is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from trueup.masking import mask, mask_value

MAX_MESSAGE = 2_000  # characters; enough for a SQL error with its context
MAX_TRACEBACK = 8_000
MAX_FACT = 16_000  # a field of a log line
MAX_TYPE = 200
MAX_NAMED = 12  # names in a message
MAX_READ = 64_000  # of a text; the rest is cut before any other processing


def clean(text: str, most: int) -> str:
    """Text that JSON in PostgreSQL can hold: no NUL, no lone surrogates, at most about `most` characters, secrets masked."""
    text = _cut(text)
    text = mask(text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode("utf-8"))
    if len(text) > most:
        text = f"{text[: most // 2]} … {len(text) - most} characters left out … {text[-(most - most // 2) :]}"
    return text


def _cut(text: str) -> str:
    """The beginning and the end of a text that is too long to process."""
    if len(text) <= MAX_READ:
        return text
    # Masking half a URL may miss its password, so the second half starts after a blank.
    start = text.find(" ", len(text) - MAX_READ // 2)
    return f"{text[: MAX_READ // 2]} …{text[start:] if start > 0 else ''}"


# As psycopg, asyncpg, SQLAlchemy and Django write them: each from its word to the next one, or to the end of an exception's text.
_CONTENTS = re.compile(
    r"^[ |]*(?:DETAIL|CONTEXT|STATEMENT|QUERY|\[parameters): .*?"
    r"(?=^[ |]*(?:(?:HINT|DETAIL|CONTEXT|STATEMENT|QUERY|LOCATION|LINE \d+|\[SQL|\[parameters)\b|\(Background|$|Traceback|\+--)|\Z)",
    re.MULTILINE | re.DOTALL,
)

# As pydantic writes it, on one line.
_INPUT = re.compile(r", input_value=.*(?=, input_type=[^,\]]*\])")


def without_contents(text: str, error: BaseException) -> str:
    """The text of an error, or of its traceback, without what errors of PostgreSQL's and pydantic's in it quote of rows."""
    if quoted := {line for each in _all_of(error) for line in _quoted(each)}:
        # libpq may have put the words before them in another language.
        lines = text.splitlines(keepends=True)
        text = "".join(line for line in lines if not line.rstrip().endswith(tuple(quoted)))
    for primary, kept in map(_primary, _all_of(error)):
        if primary != kept:
            text = text.replace(primary, kept)
    if any(word in text for word in ("DETAIL: ", "CONTEXT: ", "[parameters: ")):
        text = _CONTENTS.sub("", text)
    if "input_value=" in text:
        text = _INPUT.sub("", text)
    return text


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """An error, what caused it, and the errors of a group."""
    seen: set[int] = set()
    left = [error]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        left += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def _quoted(error: BaseException) -> Iterator[str]:
    """The lines in which an error of psycopg's quotes a row or a statement."""
    diag = getattr(error, "diag", None)
    for name in ("message_detail", "context", "internal_query"):
        said = getattr(diag, name, None)
        if isinstance(said, str):
            yield from (line.rstrip() for line in said.splitlines() if line.strip())


# The class of SQLSTATEs about values: their messages quote the value that cannot be read, or is out of range.
_DATA = "22"
_VALUE = re.compile('(["„«“]).*(["“»”])', re.DOTALL)  # with the quotation marks of any language


def _primary(error: BaseException) -> tuple[str, str]:
    """The message of a server's error, and the same without the value that it quotes."""
    diag = getattr(error, "diag", None)
    # An error of asyncpg's has no `diag`.
    primary = getattr(error, "message", None) if diag is None else getattr(diag, "message_primary", None)
    state = getattr(error, "sqlstate", None)
    if not isinstance(primary, str) or not isinstance(state, str):
        return "", ""
    return primary, _VALUE.sub(r"\1…\2", primary) if state.startswith(_DATA) else primary


def describe(error: BaseException) -> str:
    """`str(error)`, clean; of an error of PostgreSQL's its message, constraint and SQLSTATE alone. Never raises."""
    try:
        return clean(_refusal(error) or without_contents(_cut(str(error)).strip(), error).rstrip(), MAX_MESSAGE)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        return f"<{type(error).__name__} without a text: str() of it raised {type(broken).__name__}>"


def _refusal(error: BaseException) -> str | None:
    """The message of a server's error in psycopg's format."""
    primary, state = _primary(error)[1], getattr(error, "sqlstate", None)
    if not primary or not state:
        return None
    constraint = getattr(getattr(error, "diag", None), "constraint_name", None)
    named = f"constraint {constraint}, " if constraint and constraint not in primary else ""
    return f"{primary} ({named}SQLSTATE {state})"


def type_name(error: BaseException) -> str:
    cls = type(error)
    builtin = cls.__module__ in ("builtins", "__main__")
    return clean(cls.__qualname__ if builtin else f"{cls.__module__}.{cls.__qualname__}", MAX_TYPE)


def clean_fact(value: Any) -> Any:
    """A field of a log line: texts bounded and masked, also inside containers; what stands under a secret's name is hidden."""
    match value:
        case str():
            return clean(value, MAX_FACT) if len(value) > MAX_FACT else mask(value)
        case None | bool() | int() | float():
            return value
    return mask_value(value)


def fault_in_text(text: str, path: str) -> str | None:
    """Why PostgreSQL cannot hold this text; None when it can."""
    if "\x00" in text:
        return f"{path}: text with a NUL character, which PostgreSQL cannot store"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"{path}: text with a lone surrogate at position {error.start}, which is not valid Unicode"
    return None


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def known_names(name: str, names: Iterable[str]) -> str:
    """The text after "there is no …": similar names, or else all known names."""
    by_folded = {each.casefold(): each for each in sorted(names)}
    if not by_folded:
        return "none is known yet: give the --app that declares it, or start a worker with it"
    near = get_close_matches(name.casefold(), by_folded, n=3)
    if near:
        return f"did you mean {' or '.join(repr(by_folded[each]) for each in near)}?"
    listed = list(by_folded.values())
    more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
    return f"known: {', '.join(listed[:MAX_NAMED])}{more}"
