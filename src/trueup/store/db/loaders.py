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


class _Date(DateLoader):
    def load(self, data: Buffer) -> date:
        try:
            return super().load(data)
        except psycopg.DataError:
            return date.min if _early(data) else date.max


class _Timestamp(TimestampLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return datetime.min if _early(data) else datetime.max  # noqa: DTZ901 - as the column: without a zone


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
            return (datetime.min if _early(data) else datetime.max).replace(tzinfo=UTC)  # noqa: DTZ901


class _Time(TimeLoader):
    def load(self, data: Buffer) -> time:
        try:
            return super().load(data)
        except psycopg.DataError:  # 24:00
            return time.max


class _TimeTz(TimetzLoader):
    def load(self, data: Buffer) -> time:
        try:
            return super().load(data)
        except psycopg.DataError:
            return time.max.replace(tzinfo=UTC)


class _Interval(IntervalLoader):
    def load(self, data: Buffer) -> timedelta:
        try:
            return super().load(data)
        except (psycopg.DataError, OverflowError):
            return timedelta.min if _early(data) else timedelta.max


class _Json(JsonLoader):
    """A number with more digits, or deeper nesting, than Python reads leaves the text as it is stored."""

    def load(self, data: Buffer) -> Any:
        try:
            return super().load(data)
        except (ValueError, RecursionError):
            return bytes(data).decode()


def _early(data: Buffer) -> bool:
    text = bytes(data)
    return text.startswith(b"-") or text.endswith(b"BC")


LOADERS: dict[str, type[Loader]] = {
    "date": _Date,
    "time": _Time,
    "timetz": _TimeTz,
    "timestamp": _Timestamp,
    "timestamptz": _Timestamptz,
    "interval": _Interval,
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
