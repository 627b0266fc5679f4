"""Storing jobs: one, or many in bounded memory; in a transaction of our own or in the caller's."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg._encodings import pg2pyenc
from psycopg.pq import TransactionStatus

from trueup import faults
from trueup.errors import ConfigError, InvalidArguments
from trueup.jobs.job import Draft
from trueup.store.coalescing import Coalescing
from trueup.store.db.asyncpg import AsyncpgConnection
from trueup.store.db.blocking import SyncPool
from trueup.store.db.callers import CallersConnection, connection_of, connection_of_sync, in_pipeline
from trueup.store.db.load import Statements
from trueup.store.db.pool import Pool
from trueup.store.db.repeating import repeated, repeated_sync
from trueup.store.db.steps import drive, drive_sync, fetch, fetch_sync
from trueup.store.inserting import ONE_STATEMENT, Inserting, Stored, StoredMany, first_of, in_order

BLOCK = 64 * 1024  # bytes of COPY data sent at a time
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_BYTES = 4 * 1024 * 1024  # of what is kept to be read again; a longer batch stays within bounded memory
EACH = 400  # bytes that a job takes besides its texts


class Enqueue:
    def __init__(self, statements: Statements, pool: Pool, sync_pool: SyncPool) -> None:
        self._statements = statements
        self._clock = statements.clock
        self._aging = statements.aging
        self._pool = pool
        self._sync_pool = sync_pool
        self._inserting = Inserting(statements)
        self._coalescing = Coalescing(pool, self._new)

    async def one(self, draft: Draft, tx: Any = None) -> Stored:
        """Store a job, or find the live one with its unique key. Raises DuplicateJob when the draft says so."""
        if tx is not None:
            theirs = await connection_of(tx)
            draft = fitted(draft, encoding_of(theirs))
            if draft.unique_for is None:
                return await drive(self._inserting.store(draft), theirs)
            async with self._savepoint(theirs):  # a duplicate that the caller catches must not leave its window taken
                return await drive(self._inserting.store(draft), theirs)
        if draft.unique_key is None:
            return Stored(await self._coalescing.one(draft), created=True)
        if draft.unique_for is None:
            async with self._pool.use() as connection:
                return await drive(self._inserting.store(draft), connection)

        async def windowed() -> Stored:
            async with self._pool.transaction() as connection:
                return await drive(self._inserting.store(draft), connection)

        return await repeated(windowed)

    async def _new(self, drafts: Sequence[Draft], connection: AsyncConnection[Any]) -> list[int]:
        """Store jobs without unique keys in one statement; their ids, in the same order."""
        ask = self._inserting.insert_one(drafts[0]) if len(drafts) == 1 else self._inserting.insert(drafts, often=True)
        rows = await fetch(connection, ask.query, ask.params, often=ask.often)
        return [row[0] for row in rows]

    def one_sync(self, draft: Draft, tx: Any = None) -> Stored:
        if tx is not None:
            theirs = connection_of_sync(tx)
            draft = fitted(draft, encoding_of(theirs))
            if draft.unique_for is None:
                return drive_sync(self._inserting.store(draft), theirs)
            with self._savepoint_sync(theirs):
                return drive_sync(self._inserting.store(draft), theirs)
        if draft.unique_for is None:
            with self._sync_pool.use() as connection:
                return drive_sync(self._inserting.store(draft), connection)

        def windowed() -> Stored:
            with self._sync_pool.transaction() as connection:
                return drive_sync(self._inserting.store(draft), connection)

        return repeated_sync(windowed)

    async def many(self, template: Draft, drafts: Iterable[Draft], tx: Any = None) -> StoredMany:
        """Store all of them or none. Reads the iterator lazily and keeps at most a block of it in memory."""
        if tx is not None:
            theirs = await connection_of(tx)
            async with self._savepoint(theirs):
                return await self._many(*_all_fitted(template, drafts, theirs), theirs, theirs=True)
        replay = Replay(drafts)
        reading = iter(replay)
        first, more = first_of(reading)
        if not more and template.on_conflict == "keep":
            async with self._pool.use() as connection:  # one statement needs no transaction around it
                return await drive(self._inserting.store_many(template, iter(first)), connection)
        begun = [chain(first, more, reading)]  # what has been read may be too much to be read again

        async def once() -> StoredMany:
            async with self._pool.transaction() as connection:
                return await self._many(template, begun.pop() if begun else iter(replay), connection)

        return await repeated(once, possible=replay.possible)

    def many_sync(self, template: Draft, drafts: Iterable[Draft], tx: Any = None) -> StoredMany:
        if tx is not None:
            theirs = connection_of_sync(tx)
            with self._savepoint_sync(theirs):
                return self._many_sync(*_all_fitted(template, drafts, theirs), theirs, theirs=True)
        replay = Replay(drafts)

        def once() -> StoredMany:
            with self._sync_pool.transaction() as connection:
                return self._many_sync(template, iter(replay), connection)

        return repeated_sync(once, possible=replay.possible)

    async def together(self, drafts: Sequence[Draft], tx: AsyncConnection[Any]) -> None:
        """Store jobs of any kinds in a transaction that is ours. Raises DuplicateJob when one of them says so."""
        plain = in_order([draft for draft in drafts if draft.on_conflict == "keep" and draft.unique_for is None])
        for start in range(0, len(plain), ONE_STATEMENT):
            ask = self._inserting.insert(plain[start : start + ONE_STATEMENT])
            await fetch(tx, ask.query, ask.params)
        for draft in drafts:
            if draft.on_conflict != "keep" or draft.unique_for is not None:
                await drive(self._inserting.store(draft), tx)

    @asynccontextmanager
    async def _savepoint(self, tx: CallersConnection) -> AsyncIterator[None]:
        """All or nothing inside the caller's transaction. It is begun first: psycopg commits one that a block had to begin."""
        if isinstance(tx, AsyncpgConnection):
            async with tx.savepoint(self._statements):
                yield
            return
        if tx.info.transaction_status == TransactionStatus.IDLE:
            await fetch(tx, self._statements["session/microseconds"], {"now": None})
        async with tx.transaction():
            yield

    @contextmanager
    def _savepoint_sync(self, tx: Connection[Any]) -> Iterator[None]:
        if tx.info.transaction_status == TransactionStatus.IDLE:
            fetch_sync(tx, self._statements["session/microseconds"], {"now": None})
        with tx.transaction():
            yield

    async def _many(
        self, template: Draft, drafts: Iterator[Draft], connection: CallersConnection, *, theirs: bool = False
    ) -> StoredMany:
        # Neither can stream our COPY statement.
        if isinstance(connection, AsyncpgConnection) or in_pipeline(connection):
            return await drive(self._inserting.store_many(template, drafts), connection)
        first, more = first_of(drafts)
        drafts = chain(first, more, drafts)
        if not more or any(draft.unique_key is not None for draft in first):
            return await drive(self._inserting.store_many(template, drafts), connection)
        ((now,),) = await fetch(connection, self._statements["session/microseconds"], {"now": self._clock.now()})
        lines = _CopyLines(template, now, self._aging, encoding_of(connection) or "utf-8")
        for blocks in _copies(lines.blocks(drafts), theirs=theirs):
            async with AsyncCursor(connection).copy(self._statements["jobs/copy"]) as copy:
                for block in blocks:
                    await copy.write(block)
                    await asyncio.sleep(0)  # validating and encoding a block takes a while: other tasks get a turn
                    faults.hit("mid_enqueue_many")
        await fetch(connection, *self._wake(template, lines))
        return StoredMany(lines.count, 0)

    def _many_sync(
        self, template: Draft, drafts: Iterator[Draft], connection: Connection[Any], *, theirs: bool = False
    ) -> StoredMany:
        if in_pipeline(connection):
            return drive_sync(self._inserting.store_many(template, drafts), connection)
        first, more = first_of(drafts)
        drafts = chain(first, more, drafts)
        if not more or any(draft.unique_key is not None for draft in first):
            return drive_sync(self._inserting.store_many(template, drafts), connection)
        ((now,),) = fetch_sync(connection, self._statements["session/microseconds"], {"now": self._clock.now()})
        lines = _CopyLines(template, now, self._aging, encoding_of(connection) or "utf-8")
        for blocks in _copies(lines.blocks(drafts), theirs=theirs):
            with Cursor(connection).copy(self._statements["jobs/copy"]) as copy:
                for block in blocks:
                    copy.write(block)
        fetch_sync(connection, *self._wake(template, lines))
        return StoredMany(lines.count, 0)

    def _wake(self, template: Draft, lines: _CopyLines) -> tuple[bytes, dict[str, Any]]:
        return self._statements["jobs/wake"], {
            "channel": self._statements.channel,
            "now": self._clock.now(),
            "lane": template.lane,
            "run_at": lines.run_at,
        }


def _all_fitted(
    template: Draft, drafts: Iterable[Draft], theirs: CallersConnection | Connection[Any]
) -> tuple[Draft, Iterator[Draft]]:
    encoding = encoding_of(theirs)
    return (
        (template, iter(drafts))
        if encoding is None
        else (fitted(template, encoding), (fitted(each, encoding) for each in drafts))
    )


def _copies(blocks: Iterator[bytes], *, theirs: bool) -> Iterator[Iterable[bytes]]:
    """What each COPY carries: all blocks, or one.

    An iterator may read from its caller's connection, from a server-side cursor for example. Nothing else can be sent there while a
    COPY is under way, and psycopg waits for its end without a limit. So each block is complete before its COPY begins.
    """
    return ([block] for block in blocks) if theirs else iter((blocks,))


class _CopyLines:
    """Drafts as COPY text, in the encoding of the connection. All but the key and the arguments is the same for all of them."""

    def __init__(self, template: Draft, microseconds: int, aging: timedelta, encoding: str) -> None:
        self.count = 0
        self._encoding = encoding
        now = EPOCH + timedelta(microseconds=microseconds)
        self.run_at = (template.run_at or now) + template.delay
        rank = self.run_at - template.priority * aging
        fixed = (
            _escape(template.kind),
            _escape(template.queue),
            _escape(template.lane),
            str(template.priority),
            str(template.max_attempts),
            self.run_at.isoformat(),
            rank.isoformat(),
            now.isoformat(),
            r"\N" if template.meta is None else _escape(template.meta),
        )
        self._fixed = "\t".join(fixed)

    def blocks(self, drafts: Iterator[Draft]) -> Iterator[bytes]:
        fixed, lines, size = self._fixed, [], 0
        for draft in drafts:
            if draft.unique_key is not None:
                raise ConfigError(f"{draft.kind}: unique= must give a key for every item of a batch, or for none")
            line = f"{fixed}\t{_escape(draft.key)}\t{_escape(draft.args)}\n"
            lines.append(line)
            size += len(line)
            self.count += 1
            if size >= BLOCK:
                yield "".join(lines).encode(self._encoding)
                lines, size = [], 0
        if lines:
            yield "".join(lines).encode(self._encoding)


def _escape(text: str) -> str:
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text


class Replay:
    """Jobs of a batch that can be read again, for a transaction that is repeated as a whole.

    A list is simply read again. Of an iterator, jobs are kept while they are few.
    """

    def __init__(self, drafts: Iterable[Draft]) -> None:
        self._source = drafts
        self._rest = iter(drafts)
        self._again = self._rest is not drafts
        self._kept: list[Draft] = []
        self._size = 0

    def possible(self) -> bool:
        """Whether all that was read can be read again. If not, it must not be."""
        return self._again or self._size <= MAX_BYTES

    def __iter__(self) -> Iterator[Draft]:
        """From the beginning, and then on from where the source was left."""
        if self._size > MAX_BYTES:
            assert self._again
            yield from self._source
            return
        yield from tuple(self._kept)
        for draft in self._rest:
            self._size += len(draft.args) + len(draft.meta or "") + EACH
            if self._size <= MAX_BYTES:
                self._kept.append(draft)
            else:
                self._kept.clear()
            yield draft


_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_KEYS = {"unique_key": "unique=", "key": "the value of fair_by="}  # names of kinds and queues are ASCII


def encoding_of(connection: AsyncConnection[Any] | Connection[Any] | AsyncpgConnection) -> str | None:
    """The encoding's name in Python; None when it has every character."""
    if isinstance(connection, AsyncpgConnection):
        encoding = pg2pyenc(connection.encoding.encode())
    else:
        encoding = connection.info.encoding
        if encoding == "ascii":  # SQL_ASCII: psycopg writes UTF-8, and the server does not look at it
            return None
    return None if encoding == "utf-8" else encoding


def fitted(draft: Draft, encoding: str | None) -> Draft:
    """The job in a form that this encoding, a caller's connection's, can carry. Raises InvalidArguments naming the text which it cannot.

    trueup's own connections use UTF-8. Arguments and metadata are JSON, for which ASCII suffices. A key is sent unchanged or refused:
    Shift JIS has a yen sign where the server reads a backslash, so the encoding must give back the same text.
    """
    if encoding is None:
        return draft
    for name, called in _KEYS.items():
        text = getattr(draft, name)
        if text and not text.isascii():
            _check(draft.kind, called, text, encoding)
    meta = None if draft.meta is None else _in_ascii(draft.meta)
    return draft._replace(args=_in_ascii(draft.args), meta=meta)


def _check(kind: str, called: str, text: str, encoding: str) -> None:
    for character in text:
        try:
            arrives = character.encode(encoding).decode(encoding) == character
        except UnicodeError:
            arrives = False
        if not arrives:
            raise InvalidArguments(
                f"{kind}: {called} has {character!r}, which does not exist in {encoding}, the encoding of the caller's connection; "
                "connect with client_encoding=UTF8"
            )


def _in_ascii(written: str) -> str:
    """JSON has other characters inside its texts only, where each can be escaped."""
    return written if written.isascii() else _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], written)
