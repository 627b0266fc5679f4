"""Housekeeping of finished jobs: a partition per state and day, made ahead, dropped when its time has passed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from psycopg import errors, sql

from trueup.clock import Clock
from trueup.store.jobs import Database
from trueup.store.line import fetch
from trueup.store.load import Statements
from trueup.texts import describe

AHEAD = 3  # days made in advance: housekeeping may be down that long before rows go to the catch-all partition
LOCK = "trueup history"
KEEP_LEASES = timedelta(days=1)  # after their end, for people who ask who held one


@dataclass(frozen=True, slots=True)
class Kept:
    """How long finished jobs stay, by state."""

    done: timedelta
    cancelled: timedelta
    dead: timedelta
    ticks: timedelta
    sweeps: timedelta

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


def plan(now: datetime, keep: timedelta, existing: set[date], ahead: int = AHEAD) -> tuple[list[date], list[date]]:
    """Which days to make, and which to drop because all of each is past its time. Pure."""
    today = now.astimezone(UTC).date()
    wanted = [today + timedelta(days=days) for days in range(ahead + 1)]
    oldest = (now - keep).astimezone(UTC).date()
    return [day for day in wanted if day not in existing], sorted(day for day in existing if day < oldest)


class History:
    def __init__(self, database: Database, statements: Statements, clock: Clock) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock

    async def prune(self, kept: Kept, ahead: int = AHEAD) -> Pruned:
        """Make the coming days and drop the past ones, each in a transaction of its own.

        Several at once would lock several partitions, and readers of the whole history lock them in another order.
        """
        pruned = Pruned([], [])
        try:
            await self._days(pruned, kept, ahead)
        except errors.InsufficientPrivilege as error:  # rows expire from the catch-all partition all the same
            pruned = replace(pruned, refused=describe(error))
        await self._expire(kept)
        return pruned

    async def _days(self, pruned: Pruned, kept: Kept, ahead: int) -> None:
        ((now,),) = await self._database.fetch(self._statements["session/now"], {"now": self._clock.now()})
        for (name,) in await self._database.fetch(self._statements["history/unidentified"]):
            await self._alone(name, "history/identify")
        rows = await self._database.fetch(self._statements["history/partitions"], {"schema": self._statements.schema})
        for parent, keep in kept.by_parent().items():
            days = {day for row in rows if row[0] == parent and (day := day_of(row[1]))}
            create, drop = plan(now, keep, days, ahead)
            pruned.created.extend([name for day in create if (name := await self._create(parent, day))])
            pruned.dropped.extend([name for day in drop if (name := await self._drop(parent, day))])

    async def _create(self, parent: str, day: date) -> str | None:
        return await self._alone(
            day_name(parent, day),
            "history/create_day",
            parent=sql.Identifier(parent),
            first=sql.Literal(f"{day} 00:00:00+00"),
            last=sql.Literal(f"{day + timedelta(days=1)} 00:00:00+00"),
        )

    async def _drop(self, parent: str, day: date) -> str | None:
        return await self._alone(day_name(parent, day), "history/drop_day")

    async def _alone(self, name: str, statement: str, **names: sql.Composable) -> str | None:
        """Do it unless another worker is at it, has done it, or the lock is not to be had soon; the next pass tries again."""
        text = self._statements.compose(statement, day=sql.Identifier(name), **names)
        try:
            async with self._database.transaction() as connection:
                lock = {"name": f"{LOCK} {self._statements.schema}"}
                ((mine,),) = await fetch(connection, self._statements["history/lock"], lock)
                if mine:
                    await connection.execute(text)
                return name if mine else None
        except (errors.LockNotAvailable, errors.DuplicateTable):
            return None
        except errors.CheckViolation:  # the catch-all already has rows of that day: they stay there and go by age
            return None

    async def _expire(self, kept: Kept) -> None:
        """Rows outside any day, unique windows, sweeps and versions of schedules go by age: in batches, until none is left."""
        now = self._clock.now()
        for parent, keep in kept.by_parent().items():
            column = "due_at" if parent == "ticks" else "finished_at"
            statement = self._statements.compose(
                "history/expire_rest", rest=sql.Identifier(f"{parent}_rest"), column=sql.Identifier(column)
            )
            while await self._database.fetch(statement, {"now": now, "keep": keep.total_seconds()}):
                pass
        leases = {"now": now, "keep": KEEP_LEASES.total_seconds()}
        while await self._database.fetch(self._statements["leases/forget"], leases):
            pass
        while await self._database.fetch(self._statements["history/expire_windows"], {"now": now}):
            pass
        sweeps = {"now": now, "keep": kept.sweeps.total_seconds()}
        while await self._database.fetch(self._statements["history/expire_sweeps"], sweeps):
            pass
        finished = {"now": now, "keep": kept.done.total_seconds()}
        for verb in ("finish_schedules", "expire_schedules"):
            while await self._database.fetch(self._statements[f"history/{verb}"], finished):
                pass
        ticks = {"now": now, "keep": kept.ticks.total_seconds()}
        while await self._database.fetch(self._statements["history/expire_versions"], ticks):
            pass
