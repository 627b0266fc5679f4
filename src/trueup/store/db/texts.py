"""Python values as the text that PostgreSQL reads: columns of any type then travel as arrays of text and are cast where they arrive."""

from __future__ import annotations

from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

from psycopg.adapt import PyFormat, Transformer
from psycopg.types.json import Json, Jsonb

from trueup.store.rows.tables import Column
from trueup.texts import type_name


def text_of(value: Any, column: Column) -> str | None:
    """Raises psycopg.Error, or another Exception, when there is no such text."""
    try:
        return _text_of(value, column)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # of the value's own code: it must not end the loop that writes
        raise ValueError(f"column {column.name!r}: the value raises {type_name(error)} when it is read") from None


def _text_of(value: Any, column: Column) -> str | None:
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return None
    if isinstance(value, str) and column.category != "json":
        if "\0" in value:
            raise ValueError(f"column {column.name!r}: PostgreSQL cannot store a NUL character")
        return value
    if isinstance(value, date) and (end := _end(value)) is not None:
        return end
    if isinstance(value, datetime) and value.tzinfo is not None and column.category == "timestamp":
        value = value.astimezone(UTC).replace(tzinfo=None)  # PostgreSQL would drop the zone and keep the hour
    if isinstance(value, datetime) and value.tzinfo is None and column.category == "timestamptz":
        value = value.replace(tzinfo=UTC)  # as everywhere here; PostgreSQL would take it in the session's zone
    if isinstance(value, bytes | bytearray | memoryview):
        return _hex(value)
    if isinstance(value, list) and column.category != "json":
        value = _items(value)
    if column.category == "json" or isinstance(value, dict):
        value = value if isinstance(value, Json | Jsonb) else Jsonb(value)
    dumped = Transformer().get_dumper(value, PyFormat.TEXT).dump(value)
    return None if dumped is None else bytes(dumped).decode()


def _end(value: date) -> str | None:
    """The first and last moment of Python's stand for what is beyond them, as `loaders` reads it."""
    if isinstance(value, datetime):
        value, ends = value.replace(tzinfo=None), (datetime.min, datetime.max)  # noqa: DTZ901 - compared without a zone
        return "-infinity" if value == ends[0] else "infinity" if value == ends[1] else None
    return "-infinity" if value == date.min else "infinity" if value == date.max else None


def _items(values: list[Any]) -> list[Any]:
    """Of an array. The driver quotes bytes for a statement unless it knows the connection, and that once too often for us."""
    return [_item(value) for value in values]


def _item(value: Any) -> Any:
    if isinstance(value, list):
        return _items(value)
    if isinstance(value, Enum):
        return value.value
    return _hex(value) if isinstance(value, bytes | bytearray | memoryview) else value


def _hex(value: bytes | bytearray | memoryview) -> str:
    return "\\x" + bytes(value).hex()
