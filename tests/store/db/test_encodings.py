"""Jobs through connections of callers whose encoding lacks their characters, or has others in their places."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest

from trueup import App, InvalidArguments, Job

pytestmark = pytest.mark.asyncio

TEXT = '¥100 ‾ é 日本 😀 \\ " \n'  # to Python, Shift JIS has the yen sign where PostgreSQL reads a backslash
ENCODINGS = ["UTF8", "SJIS", "EUC_JP", "LATIN1", "WIN1252", "SQL_ASCII"]
MANY = 600  # streamed


@asynccontextmanager
async def of_psycopg(url: str, encoding: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, client_encoding=encoding) as connection:
        yield connection


@asynccontextmanager
async def of_asyncpg(url: str, encoding: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, server_settings={"client_encoding": encoding})
    async with connection.transaction():
        yield connection
    await connection.close()


@pytest.fixture
def job(app: App) -> Job[..., Any]:
    @app.job(fair_by="key")
    async def note(text: str, key: str = "a") -> None: ...

    return note


def stored(url: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select distinct args ->> 'text', meta ->> 'm' from trueup.jobs").fetchall()


@pytest.mark.parametrize("of", [of_psycopg, of_asyncpg])
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_arguments_and_meta_arrive_as_they_were_sent(
    app: App, database_url: str, job: Job[..., Any], encoding: str, of: Any
) -> None:
    async with app, of(database_url, encoding) as tx:
        sent = job.using(tx=tx, meta={"m": TEXT})
        await sent.enqueue(TEXT)
        await sent.enqueue_many([(TEXT,)])
        assert (await sent.enqueue_many([(TEXT,)] * MANY)).created == MANY
    assert stored(database_url) == [(TEXT, TEXT)]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_and_without_an_event_loop(app: App, database_url: str, job: Job[..., Any], encoding: str) -> None:
    async with app:
        with psycopg.connect(database_url, client_encoding=encoding) as tx:
            sent = job.using(tx=tx, meta={"m": TEXT})
            sent.enqueue_sync(TEXT)
            sent.enqueue_many_sync([(TEXT,)])
            assert sent.enqueue_many_sync([(TEXT,)] * MANY).created == MANY
    assert stored(database_url) == [(TEXT, TEXT)]


@pytest.mark.parametrize("of", [of_psycopg, of_asyncpg])
@pytest.mark.parametrize(("called", "unique", "key"), [("unique=", "¥1", "a"), ("fair_by=", None, "¥1")])
async def test_a_key_that_would_arrive_as_another_is_refused(
    app: App, database_url: str, job: Job[..., Any], of: Any, called: str, unique: str | None, key: str
) -> None:
    async with app, of(database_url, "SJIS") as tx:
        with pytest.raises(InvalidArguments, match=rf"note: .*{called}.* has '¥', which does not exist in shift_jis"):
            await job.using(tx=tx, unique=unique).enqueue("x", key=key)
        with pytest.raises(InvalidArguments, match=called):
            await job.using(tx=tx, unique=unique).enqueue_many([("x", key)])
        await job.using(tx=tx, unique="日本").enqueue("x", key="日本")  # the transaction is as good as before
    assert len(stored(database_url)) == 1
