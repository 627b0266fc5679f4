"""Python values as the text that PostgreSQL reads: columns of any type then travel as arrays of text and are cast where they arrive."""

from __future__ import annotations

from enum import Enum
from typing import Any

from psycopg.adapt import PyFormat, Transformer
from psycopg.types.json import Json, Jsonb

from trueup.store.tables import Column


def text_of(value: Any, column: Column) -> str | None:
    """Raises psycopg.Error or TypeError when there is no such text."""
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return None
    if isinstance(value, str) and column.category != "json":
        if "\0" in value:
            raise ValueError(f"column {column.name!r}: PostgreSQL cannot store a NUL character")
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if column.category == "json" or isinstance(value, dict):
        value = value if isinstance(value, Json | Jsonb) else Jsonb(value)
    dumped = Transformer().get_dumper(value, PyFormat.TEXT).dump(value)
    return None if dumped is None else bytes(dumped).decode()
