"""Statements in sequence, written once for async and sync callers.

A sequence is a generator that yields statements and is sent their rows; `drive` and `drive_sync` run it on a connection.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection

from trueup.store.line import Rows, fetch
from trueup.store.pool import fetch_sync

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    query: bytes
    params: dict[str, Any]


Steps = Generator[Ask, Rows, T]


async def drive(steps: Steps[T], connection: AsyncConnection[Any]) -> T:
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await fetch(connection, ask.query, ask.params))
    except StopIteration as done:
        result: T = done.value
        return result


def drive_sync(steps: Steps[T], connection: Connection[Any]) -> T:
    try:
        ask = next(steps)
        while True:
            ask = steps.send(fetch_sync(connection, ask.query, ask.params))
    except StopIteration as done:
        result: T = done.value
        return result
