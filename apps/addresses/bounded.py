"""Transactions that the server ends when their process falls silent: one that is frozen in the middle must not keep its locks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from trueup import App

from .books import Tx


@asynccontextmanager
async def bounded(app: App, silence: timedelta) -> AsyncIterator[Tx]:
    async with app.transaction() as tx:
        milliseconds = str(silence // timedelta(milliseconds=1))
        await tx.execute("select set_config('idle_in_transaction_session_timeout', %s, true)", [milliseconds])
        yield tx
