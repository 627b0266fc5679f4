"""Values of users' rows that Python cannot hold become the nearest that it can: one row must not make a whole batch unreadable."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import cache

import psycopg
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.types.datetime import DateLoader, TimestampLoader, TimestamptzLoader


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


class _Timestamptz(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except (psycopg.DataError, OverflowError):
            return (datetime.min if _early(data) else datetime.max).replace(tzinfo=UTC)  # noqa: DTZ901


def _early(data: Buffer) -> bool:
    text = bytes(data)
    return text.startswith(b"-") or text.endswith(b"BC")


@cache
def _clamping() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    loaders: dict[str, type[Loader]] = {"date": _Date, "timestamp": _Timestamp, "timestamptz": _Timestamptz}
    for name, loader in loaders.items():
        adapters.register_loader(name, loader)
    return adapters


class _Clamping:
    connection = None

    @property
    def adapters(self) -> AdaptersMap:
        return _clamping()


def context() -> AdaptContext:
    """What connections that read users' rows are made with: infinity, and years beyond Python's, are clamped."""
    return _Clamping()
