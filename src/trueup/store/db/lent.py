"""A transaction that users' code is given: bounded in time, and at its end still the one that was begun.

That code may send COMMIT, ROLLBACK or PREPARE TRANSACTION itself. What it wrote before is then committed or undone on its own, and what
trueup writes at the end would not be atomic with it. Such a transaction is refused before anything is written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from trueup.errors import TrueupError
from trueup.store.db import message
from trueup.store.db.blocking import fetch_sync
from trueup.store.db.load import source
from trueup.store.db.message import Fetched, Query
from trueup.store.db.own_connection import fetch, milliseconds

BOUND = source("session/bound").encode()
TRANSACTION = source("session/transaction").encode()


class Lent:
    def __init__(self, whose: str) -> None:
        """`whose`: the code that it is given to, for errors."""
        self._whose = whose
        self._began: Fetched = []

    async def begin(self, connection: AsyncConnection[Any], idle_for: timedelta) -> None:
        """The server ends it when its client sends nothing for that long: a frozen process must not keep its locks."""
        bound = message.filled(connection, Query(BOUND, milliseconds(idle_for)))
        answers = (await message.send(connection, *message.afresh(connection), bound)).check()
        self._began = answers.rows(len(answers) - 1)

    def begin_sync(self, connection: Connection[Any], idle_for: timedelta) -> None:
        self._began = fetch_sync(connection, BOUND, milliseconds(idle_for))

    async def check(self, connection: AsyncConnection[Any]) -> None:
        """Raise unless it is open still. Of one that has failed, the server's error."""
        self._check_open(connection)
        self._check_same(await fetch(connection, TRANSACTION))

    def check_sync(self, connection: Connection[Any]) -> None:
        self._check_open(connection)
        self._check_same(fetch_sync(connection, TRANSACTION))

    def _check_open(self, connection: AsyncConnection[Any] | Connection[Any]) -> None:
        if connection.info.transaction_status == TransactionStatus.IDLE:
            raise self._ended()

    def _check_same(self, rows: Fetched) -> None:
        if rows != self._began:
            raise self._ended()

    def _ended(self) -> TrueupError:
        return TrueupError(
            f"{self._whose} has ended trueup's transaction with its own COMMIT, ROLLBACK or PREPARE TRANSACTION, so its writes before "
            "that were committed or rolled back separately. Let trueup end the transaction; for your own commit use app.transaction()"
        )
