"""Values that Python cannot hold become the nearest that it can: one row must not make a whole batch or list unreadable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.types.datetime import (
    DateLoader,
    IntervalLoader,
    TimeLoader,
    TimestampLoader,
    TimestamptzLoader,
    TimetzLoader,
)
from psycopg.types.json import JsonLoader


def _clamped(loader: Any, least: Any, most: Any) -> type[Loader]:
    """A loader of psycopg's that loads what is before or after Python's bounds as one of these two."""

    class Clamped(loader):  # type: ignore[misc]
        def load(self, data: Buffer) -> Any:
            try:
                return super().load(data)
            except (psycopg.DataError, OverflowError):
                return least if _early(data) else most

    return Clamped


def _early(data: Buffer) -> bool:
    text = bytes(data)
    return text.startswith(b"-") or text.endswith(b"BC")


class _Timestamptz(Loader):
    """Every claimed row has three: they are read by psycopg's own loader, written in C where that is installed."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        quick = psycopg.adapters.get_loader(oid, self.format) or TimestamptzLoader
        self._read: Callable[[Buffer], datetime] = quick(oid, context).load

    def load(self, data: Buffer) -> datetime:
        try:
            return self._read(data)
        except (psycopg.DataError, OverflowError):
            return (FIRST if _early(data) else LAST).replace(tzinfo=UTC)


class _Json(JsonLoader):
    """A number with more digits, or deeper nesting, than Python reads leaves the text as it is stored."""

    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)
        except (ValueError, RecursionError):
            return bytes(data).decode()


FIRST, LAST = datetime.min, datetime.max  # noqa: DTZ901 - of a column without a zone
LOADERS: dict[str, type[Loader]] = {
    "date": _clamped(DateLoader, date.min, date.max),
    "time": _clamped(TimeLoader, time.max, time.max),  # 24:00
    "timetz": _clamped(TimetzLoader, time.max.replace(tzinfo=UTC), time.max.replace(tzinfo=UTC)),
    "timestamp": _clamped(TimestampLoader, FIRST, LAST),
    "timestamptz": _Timestamptz,
    "interval": _clamped(IntervalLoader, timedelta.min, timedelta.max),
}


class _Clamping:
    connection = None

    def __init__(self, more: Mapping[str, type[Loader]]) -> None:
        self._more = more

    @cached_property
    def adapters(self) -> AdaptersMap:
        adapters = AdaptersMap(psycopg.adapters)
        for name, loader in {**LOADERS, **self._more}.items():
            adapters.register_loader(name, loader)
        return adapters


_FOR_ROWS, _FOR_OURS = _Clamping({}), _Clamping({"json": _Json, "jsonb": _Json})


def context() -> AdaptContext:
    """What connections that read users' rows are made with: infinity, and what is beyond Python's bounds, are clamped."""
    return _FOR_ROWS


def context_of_ours() -> AdaptContext:
    """The same for those that read our own tables. JSON that Python cannot read is a text there."""
    return _FOR_OURS
