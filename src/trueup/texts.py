"""Errors and other foreign texts, made fit to be stored, logged and shown: valid, of a bounded size, secrets masked."""

from __future__ import annotations

from typing import Any

from trueup.masking import mask, mask_value

MAX_MESSAGE = 2_000  # characters; enough for a SQL error with its context
MAX_TRACEBACK = 8_000
MAX_FACT = 16_000  # a field of a log line
MAX_TYPE = 200
MAX_READ = 64_000  # of a text, before anything else is done with it


def clean(text: str, most: int) -> str:
    """Text that JSON in PostgreSQL can hold: no NUL, no lone surrogates, at most about `most` characters, secrets masked."""
    if len(text) > MAX_READ:
        # Masking half a URL may miss its password, so the second half starts after a blank.
        start = text.find(" ", len(text) - MAX_READ // 2)
        text = f"{text[: MAX_READ // 2]} …{text[start:] if start > 0 else ''}"
    text = mask(text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode("utf-8"))
    if len(text) > most:
        text = f"{text[: most // 2]} … {len(text) - most} characters left out … {text[-(most - most // 2) :]}"
    return text


def describe(error: BaseException) -> str:
    """`str(error)`, clean. Never raises, although `str(error)` may."""
    try:
        return clean(str(error).strip(), MAX_MESSAGE)
    except KeyboardInterrupt:
        raise
    except BaseException as broken:
        return f"<{type(error).__name__} without a text: str() of it raised {type(broken).__name__}>"


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
