"""What every module of statements starts from: a database to send them to, and the values that many of them take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from typing import Any, Protocol, Self

from psycopg import AsyncConnection

from trueup.store.db.load import Statements
from trueup.store.db.message import Conversation, Fetched, Part
from trueup.store.db.own_connection import Answered, Record, fetch


class Database(Protocol):
    """An OwnConnection, the pool, or one transaction."""

    async def fetch(self, query: bytes, params: Mapping[str, Any] | None = None) -> Fetched: ...
    async def fetch_records(self, query: bytes, params: Mapping[str, Any]) -> list[Record]: ...
    async def fetch_kept(self, query: bytes, params: Mapping[str, Any]) -> Fetched: ...
    async def fetch_steered(self, steer: bytes, query: bytes, params: Mapping[str, Any]) -> Fetched: ...
    async def repeat(self, times: int, parts: Sequence[Part], answered: Answered) -> None: ...
    def conversation(self) -> AbstractAsyncContextManager[Conversation]: ...
    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]: ...


class Repository:
    def __init__(self, database: Database, statements: Statements) -> None:
        self._database = database
        self._statements = statements
        self._clock = statements.clock

    def on(self, database: Database) -> Self:
        """The same statements on another database."""
        same = copy(self)
        same._database = database
        return same

    async def _fetch(self, statement: str, /, **params: Any) -> Fetched:
        """Its rows. `now`, `channel` and `aging` need not be given."""
        return await self._database.fetch(self._statements[statement], self._with(params))

    async def _records(self, statement: str, /, **params: Any) -> list[Record]:
        """Its rows by the names of their columns: for those who show them."""
        return await self._database.fetch_records(self._statements[statement], self._with(params))

    async def _fetch_on(self, connection: AsyncConnection[Any], statement: str, /, **params: Any) -> Fetched:
        """The same inside a transaction that is open already."""
        return await fetch(connection, self._statements[statement], self._with(params))

    async def _fetch_kept(self, statement: str, /, **params: Any) -> Fetched:
        return await self._database.fetch_kept(self._statements[statement], self._with(params))

    async def _fetch_steered(self, statement: str, steer: str = "session/steer", /, **params: Any) -> Fetched:
        return await self._database.fetch_steered(
            self._statements[steer], self._statements[statement], self._with(params)
        )

    def _with(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._statements.shared(), **params}
