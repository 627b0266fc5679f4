"""Housekeeping of finished jobs: a partition per state and day, created in advance, dropped after its retention.

Creating and dropping a day lock tables that every worker uses, and other sessions queue behind a session that waits for such a
lock. So housekeeping first checks whether a session has had a table open for long, waits only briefly, and leaves the rest to the
next pass. What it removes is gone, so two passes must agree: a clock that was ahead during one pass removes nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection, errors, sql

from trueup.store.db.load import Statements
from trueup.store.db.message import Fetched
from trueup.store.db.own_connection import fetch, milliseconds
from trueup.store.db.repository import Database, Repository
from trueup.texts import describe

LOCK_WAIT = timedelta(milliseconds=50)  # for a table; other sessions that need it wait as long
OTHERS_WAIT = timedelta(seconds=1)  # for another worker that makes the same day, when starting
APART = 60.0  # seconds between two passes that must agree before anything is removed
SLACK = timedelta(minutes=1)  # by which the database's clock may be ahead of what the earlier pass would expect
AHEAD = 3  # days made in advance: housekeeping may be down that long before rows go to the catch-all partition
LOCK = "trueup history"
KEEP_LEASES = timedelta(days=1)  # after their end, so that people can look up the last holder
PARENTS = ("history_done", "history_cancelled", "history_dead", "ticks")


@dataclass(frozen=True, slots=True)
class Kept:
    """How long finished jobs stay, by state."""

    done: timedelta
    cancelled: timedelta
    dead: timedelta
    ticks: timedelta
    sweeps: timedelta
    actions: timedelta = timedelta(days=90)

    def by_parent(self) -> Mapping[str, timedelta]:
        return {
            "history_done": self.done,
            "history_cancelled": self.cancelled,
            "history_dead": self.dead,
            "ticks": self.ticks,
        }


@dataclass(frozen=True, slots=True)
class Pruned:
    created: list[str]
    dropped: list[str]
    refused: str | None = None  # what this role may not do, as PostgreSQL says it


def day_name(parent: str, day: date) -> str:
    return f"{parent}_{day:%Y%m%d}"


def day_of(name: str) -> date | None:
    """The day a partition is for; None for the catch-all."""
    found = re.fullmatch(r"(?:history_(?:done|dead|cancelled)|ticks)_(\d{8})", name)
    return datetime.strptime(found[1], "%Y%m%d").replace(tzinfo=UTC).date() if found else None


def column_of(parent: str) -> str:
    """The column by which a parent's rows are divided into days."""
    return "due_at" if parent == "ticks" else "finished_at"


@dataclass(frozen=True, slots=True)
class Look:
    """The database's time, and this process' own, at an earlier pass."""

    now: datetime
    elapsed: float


def agreed(now: datetime, elapsed: float, earlier: Look | None) -> datetime | None:
    """The time up to which rows may be removed, confirmed by an earlier pass. None: there was no earlier pass. Pure."""
    if earlier is None or elapsed - earlier.elapsed < APART:
        return None
    return min(now, earlier.now + timedelta(seconds=elapsed - earlier.elapsed) + SLACK)


def plan(now: datetime, keep: timedelta, existing: set[date], ahead: int = AHEAD) -> tuple[list[date], list[date]]:
    """Which days to create, and which to drop because all of each has passed its retention. Pure."""
    today = now.astimezone(UTC).date()
    wanted = [today + timedelta(days=days) for days in range(ahead + 1)]
    oldest = (now - keep).astimezone(UTC).date()
    return [day for day in wanted if day not in existing], sorted(day for day in existing if day < oldest)


class DayInUse(Exception):
    """Another session has a table open in which a day of history is created or dropped; the next pass tries again."""


class History(Repository):
    def __init__(self, database: Database, statements: Statements) -> None:
        super().__init__(database, statements)
        self._earlier: Look | None = None

    async def prune(self, kept: Kept, ahead: int = AHEAD) -> Pruned:
        """Create the coming days and drop the past ones, each in its own transaction.

        Several at once would lock several partitions, and readers of the whole history lock them in another order.
        """
        pruned = Pruned([], [])
        ((now,),) = await self._fetch("session/now")
        past = self._agreed(now)
        try:
            await self._make_and_drop(pruned, kept, ahead, now, past)
        except errors.InsufficientPrivilege as error:  # rows still expire from the catch-all partition
            pruned = replace(pruned, refused=describe(error))
        while await self._fetch("history/finish_schedules", now=now):
            pass
        if past is not None:
            await self._expire(kept, past)
        return pruned

    async def _make_and_drop(
        self, pruned: Pruned, kept: Kept, ahead: int, now: datetime, past: datetime | None
    ) -> None:
        for (name,) in await self._fetch("history/unidentified"):
            with suppress(DayInUse):
                async with self._alone(name, [name]) as connection:
                    await connection.execute(self._compose("history/identify", {"day": sql.Identifier(name)}))
        existing = await self._days()
        for parent, keep in kept.by_parent().items():
            create, _ = plan(now, keep, existing[parent], ahead)
            drop = [] if past is None else plan(past, keep, existing[parent], ahead)[1]
            with suppress(DayInUse):
                for day in create:
                    pruned.created.extend(await self._create(parent, day))
            with suppress(DayInUse):
                for day in drop:
                    pruned.dropped.extend(await self._drop(parent, day))

    async def make_ready(self) -> Pruned:
        """Create today's partition, if it is missing: rows written before it exists would stay in the catch-all partition.

        If another worker is creating it, wait for that one: it starts on a new database, too, so it takes only a moment.
        """
        pruned = Pruned([], [])
        ((now,),) = await self._fetch("session/now")
        today = now.astimezone(UTC).date()
        try:
            for parent, days in (await self._days()).items():
                with suppress(DayInUse):
                    if today not in days:
                        pruned.created.extend(await self._create(parent, today, patient=True))
        except errors.InsufficientPrivilege as error:
            pruned = replace(pruned, refused=describe(error))
        return pruned

    def _agreed(self, now: datetime) -> datetime | None:
        elapsed = self._clock.elapsed()
        past = agreed(now, elapsed, self._earlier)
        if past is not None or self._earlier is None:
            self._earlier = Look(now, elapsed)
        return past

    async def _days(self) -> dict[str, set[date]]:
        days: dict[str, set[date]] = {parent: set() for parent in PARENTS}
        for parent, name, _ in await self._fetch("history/partitions", schema=self._statements.schema):
            day = day_of(name)
            if day is not None:
                days[parent].add(day)
        return days

    async def _create(self, parent: str, day: date, *, patient: bool = False) -> list[str]:
        """Create a partition and return its name; nothing if it exists, or if its rows are in the catch-all partition. Raises DayInUse."""
        name, rest = day_name(parent, day), f"{parent}_rest"
        names = {
            "day": sql.Identifier(name),
            "parent": sql.Identifier(parent),
            "rest": sql.Identifier(rest),
            "column": sql.Identifier(column_of(parent)),
            "first": sql.Literal(f"{day} 00:00:00+00"),
            "last": sql.Literal(f"{day + timedelta(days=1)} 00:00:00+00"),
        }
        strays = self._compose("history/strays", names)
        if await self._asked(self._database.fetch(strays)):
            return []
        async with self._alone(name, [rest], patient=patient) as connection:
            if await self._there(connection, name):
                return []
            await connection.execute(self._compose("history/lock_rest", names))
            if await self._asked(fetch(connection, strays)):
                return []
            await connection.execute(self._compose("history/create_day", names))
        return [name]

    async def _drop(self, parent: str, day: date) -> list[str]:
        name = day_name(parent, day)
        async with self._alone(name, [name, parent]) as connection:
            if not await self._there(connection, name):
                return []
            await connection.execute(self._compose("history/drop_day", {"day": sql.Identifier(name)}))
        return [name]

    @asynccontextmanager
    async def _alone(
        self, name: str, tables: list[str], *, patient: bool = False
    ) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction that only one worker has at a time. Raises DayInUse when another has it, or when the tables are in use."""
        async with self._database.transaction() as connection:
            lock = f"{LOCK} {self._statements.schema}"
            try:
                async with connection.transaction():  # a refusal is expected, and leaves the connection as it is
                    if patient:
                        await self._fetch_on(connection, "history/patience", **milliseconds(OTHERS_WAIT))
                        await self._fetch_on(connection, "history/await_lock", name=lock)
                    elif not await self._asked(self._fetch_on(connection, "history/lock", name=lock)):
                        raise DayInUse(name)
                    if await self._in_use(connection, tables):
                        raise DayInUse(name)
                    await self._fetch_on(connection, "history/patience", **milliseconds(LOCK_WAIT))
                    yield connection
            except (errors.LockNotAvailable, errors.DeadlockDetected):
                raise DayInUse(name) from None

    async def _in_use(self, connection: AsyncConnection[Any], tables: list[str]) -> bool:
        params = {"schema": self._statements.schema, "tables": tables, "longer_than": LOCK_WAIT.total_seconds()}
        return await self._asked(self._fetch_on(connection, "history/in_use", **params))

    async def _there(self, connection: AsyncConnection[Any], day: str) -> bool:
        params = {"schema": self._statements.schema, "day": day}
        return await self._asked(self._fetch_on(connection, "history/there", **params))

    def _compose(self, statement: str, names: Mapping[str, sql.Composable]) -> bytes:
        return self._statements.compose(statement, **names)

    async def _asked(self, answer: Awaitable[Fetched]) -> bool:
        ((yes,),) = await answer
        return bool(yes)

    async def _expire(self, kept: Kept, now: datetime) -> None:
        """Rows outside any day, unique windows, sweeps and versions of schedules go by age: in batches, until none is left."""
        for parent, keep in kept.by_parent().items():
            column = "last_due_at" if parent == "ticks" else column_of(parent)
            rest = self._statements.compose(
                "history/expire_rest", rest=sql.Identifier(f"{parent}_rest"), column=sql.Identifier(column)
            )
            while await self._database.fetch(rest, {"now": now, "keep": keep.total_seconds()}):
                pass
        for statement, keep in (
            ("leases/forget", KEEP_LEASES),
            ("history/expire_windows", timedelta()),
            ("history/expire_sweeps", kept.sweeps),
            ("history/expire_schedules", kept.done),
            ("history/expire_refusals", timedelta()),
            ("history/expire_versions", kept.ticks),
            ("history/expire_actions", kept.actions),
        ):
            while await self._fetch(statement, now=now, keep=keep.total_seconds()):
                pass
