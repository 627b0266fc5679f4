"""Schedules as rows, and the ledger of their ticks: storing, changing and reading them. Planning is in `planning.py`.

A transaction that changes a schedule locks its row, and only then reads the clock; ticks due by then are decided under the old
version, and the new one begins at that time, so no tick falls between two versions and none belongs to both. A planner skips
locked rows: the transaction that changes a schedule decides about its due ticks, and a process frozen halfway delays one
schedule and not the fleet. A change locks only one row, so changes and planners cannot deadlock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson
import psycopg
from psycopg import AsyncConnection, errors

from trueup.clock import elapsed
from trueup.errors import ConfigError, NotFound
from trueup.schedules import spec as specs
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.spec import Spec
from trueup.store.actions import Noting
from trueup.store.db.connect import SILENT_FOR, is_away
from trueup.store.db.lent import BOUND
from trueup.store.db.message import Fetched
from trueup.store.db.own_connection import milliseconds
from trueup.store.planning import Planning, StaleSchedule, State, StillBehind, StoredSchedule
from trueup.texts import known_names

SETTLE_FOR = 5.0  # seconds of deciding about a schedule's missed ticks before it is changed: some 150,000 of them
AHEAD_BY = timedelta(minutes=1)  # a watermark that is further ahead than this was moved while the clock was ahead

UNDECLARED = "no longer declared in the code"  # the note of a schedule that was not retired by a person


@dataclass(frozen=True, slots=True)
class Entry:
    """A schedule before it is stored."""

    name: str
    origin: Literal["code", "people"]
    spec: Spec
    policy: SchedulePolicy
    kind: str
    queue: str
    lane: str
    max_attempts: int
    priority: int = 0
    args: str = "{}"
    meta: str | None = None

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        spec, policy = orjson.dumps(specs.to_json(self.spec)), orjson.dumps(self.policy.to_json())
        return {
            **{each: getattr(self, each) for each in self.__slots__},
            "spec": spec.decode(),
            "policy": policy.decode(),
        }


class Schedules(Planning):
    # -- changing -----------------------------------------------------------------------------------------------------

    async def put(self, entry: Entry, expected: int | None = None, noting: Noting | None = None) -> bool:
        """Store a schedule; what was due under its old version is settled first. False when nothing changed.

        With `expected`, nothing changes unless that is its version; 0: unless there is none of this name.
        """
        return await self.put_version(entry, expected, noting=noting) is not None

    async def put_version(
        self,
        entry: Entry,
        expected: int | None = None,
        *,
        resume_within: timedelta | None = None,
        until: float | None = None,
        noting: Noting | None = None,
    ) -> int | None:
        """`put`, which returns the new version, or None when nothing changed.

        One that was retired as undeclared not longer than `resume_within` ago goes on as if it had never been: ticks since
        then are settled by its policy, as after a downtime. `until` is when to give up settling, by `elapsed`.
        """
        async with self._settled(entry.name, until) as (connection, now):
            at, first = await self._beginning(connection, entry, now, expected)
            rows = await self._fetch_on(
                connection,
                "schedules/put",
                **entry.row(),
                expected=expected,
                at=at,
                next_due_at=first,
                undeclared=UNDECLARED,
                resumed_since=None if resume_within is None else now - resume_within,
            )
            if rows:
                await self._changed(connection, noting)
        return int(rows[0][0]) if rows else None

    async def _beginning(
        self, connection: AsyncConnection[Any], entry: Entry, now: datetime, expected: int | None
    ) -> tuple[datetime, datetime | None]:
        """From which moment on its ticks count, and the first of them. Raises ConfigError when there is none to come.

        A new one whose only tick is late by at most its `grace` is not missed yet: it begins before that.
        """
        first = entry.spec.next_after(now)
        if first is not None:
            return now, first
        exists = await self._get(connection, entry.name) is not None
        if exists and expected == 0:
            return now, None  # always refused: the name is taken
        late = entry.spec.next_after(now - entry.policy.grace - timedelta.resolution)
        if late is not None and not exists:
            return late - timedelta.resolution, late
        raise ConfigError(
            f"schedule {entry.name!r}: {entry.spec.describe()} is in the past; give a future time, or enqueue the job now"
        )

    async def pause(self, names: Sequence[str], note: str, noting: Noting | None = None) -> set[str]:
        return await self._set_state(names, "paused", ("active",), note, noting)

    async def resume(self, names: Sequence[str], noting: Noting | None = None) -> set[str]:
        """Active again from now on: ticks of the pause are not caught up."""
        return await self._set_state(names, "active", ("paused",), None, noting)

    async def retire(self, names: Sequence[str], note: str, noting: Noting | None = None) -> set[str]:
        return await self._set_state(names, "retired", ("active", "paused"), note, noting)

    async def retire_undeclared(self, name: str, retire_after: timedelta) -> bool:
        """Retire a schedule that no living worker declares. False when a worker has come to declare it meanwhile.

        Its row is locked before that is judged, and a worker records what it declares before it looks at the row: so the
        worker is seen here, or finds the schedule retired and brings it back.
        """
        async with self._settled(name) as (connection, now):
            asked = {"now": now, "names": [name], "retire_after": retire_after.total_seconds()}
            rows = await self._fetch_on(connection, "declarations/undeclared", **asked)
            if not any(may_be_retired for *_, may_be_retired in rows):
                return False
            return bool(await self._change_state(connection, name, now, "retired", ("active",), UNDECLARED))

    async def _set_state(
        self,
        names: Sequence[str],
        state: State,
        from_states: Sequence[State],
        note: str | None,
        noting: Noting | None,
    ) -> set[str]:
        changed: set[str] = set()
        for name in names:
            async with self._settled(name) as (connection, now):
                changed |= await self._change_state(connection, name, now, state, from_states, note, noting)
        return changed

    async def rewind(self, name: str, noting: Noting | None = None) -> bool:
        """Ticks from now on, for a schedule whose watermark was moved while the clock was ahead. False when it is not ahead.

        Ticks that were decided about meanwhile keep their verdict: the ledger refuses to fire them again.
        """
        async with self._database.transaction() as connection:
            now = await self._hold(connection, name)
            due = await self._next_due(connection, name, now)
            rows = await self._fetch_on(connection, "schedules/rewind", now=now, name=name, next_due_at=due)
            if rows:
                await self._changed(connection, noting)
        return bool(rows)

    async def ahead(self) -> list[tuple[str, datetime, float]]:
        """Active schedules that wait for a moment which no tick is at: (name, watermark, seconds until then)."""
        return [tuple(row) for row in await self._fetch("schedules/ahead", slack=AHEAD_BY.total_seconds())]

    @asynccontextmanager
    async def _settled(
        self, name: str, until: float | None = None
    ) -> AsyncIterator[tuple[AsyncConnection[Any], datetime]]:
        """A transaction that has locked one schedule's row and decided about all that is due for it, and its moment for now.

        After a long downtime that is too much for one transaction: then others come before it. What is refused stays undecided, or
        people could neither pause nor mend a schedule whose tick is refused; the audit names such ticks. Raises StillBehind when it is
        not done by `until`; what is decided stays.
        """
        until = elapsed() + SETTLE_FOR if until is None else until
        while True:
            async with self._database.transaction() as connection:
                now = await self._hold(connection, name)
                if not await self._settle(connection, name, now):
                    yield connection, now
                    return
            if elapsed() > until:
                raise StillBehind(name)

    async def _settle(self, connection: AsyncConnection[Any], name: str, now: datetime) -> bool:
        """One pass over one schedule, undone when it is refused. Returns whether something is due still."""
        try:
            async with connection.transaction():
                return (await self._plan(connection, now, await self._due(connection, now, [name]))).more
        except (psycopg.Error, StaleSchedule) as error:
            if is_away(error):
                raise
            return False

    async def _hold(self, connection: AsyncConnection[Any], name: str) -> datetime:
        """Lock one schedule's row, if there is one, and only then read the clock."""
        await connection.execute(BOUND, milliseconds(SILENT_FOR))
        await self._fetch_on(connection, "schedules/hold", name=name)
        return await self._now(connection)

    async def delete(self, name: str, noting: Noting | None = None) -> bool:
        """Delete a schedule that was not declared in code, or a retired one; due ticks are decided first, and its ledger stays."""
        async with self._settled(name) as (connection, now):
            rows = await self._fetch_on(connection, "schedules/delete", name=name, at=now)
            if rows:
                await self._changed(connection, noting)
        return bool(rows)

    async def trigger(self, name: str, noting: Noting | None = None) -> int | None:
        """Fire once now, regardless of the schedule. Returns the job's id; None when a tick of this exact time exists."""
        try:
            return await self._trigger(name, noting)
        except errors.CheckViolation:  # while it waited for the catch-all partition, its day was attached beside that
            return await self._trigger(name, noting)

    async def _trigger(self, name: str, noting: Noting | None) -> int | None:
        async with self._database.transaction() as connection:
            now = await self._hold(connection, name)
            known = await self._get(connection, name) is not None
            tick = arrays(name, [now], run_at=now, reason="triggered")
            rows = await self._fire(connection, tick, now) if known else []
            if rows and noting is not None:
                await noting(connection, 1, [rows[0][2]])
        if not known:  # said outside of the transaction: its names are read on another connection
            raise await self.no_such(name)
        return int(rows[0][2]) if rows else None

    async def backfill(self, name: str, moments: Sequence[datetime], noting: Noting | None = None) -> int:
        """Fire these past ticks unless they were fired, all of them or none. Returns how many were.

        What is due is settled first, so that the planner does not decide about the same ticks afterwards. Raises ConfigError
        when one of them is still to come: that one is the planner's.
        """
        async with self._settled(name) as (connection, now):
            if moments and max(moments) > now:
                raise ConfigError(
                    f"schedule {name!r}: {max(moments).isoformat()} is in the future; a backfill takes past times only"
                )
            # Due now and not then: they queue up behind what waits already, oldest first.
            fired = await self._fire(connection, arrays(name, moments, run_at=now, reason="backfill"), now)
            if fired and noting is not None:
                await noting(connection, len(fired), [row[2] for row in fired])
            return len(fired)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, name: str) -> StoredSchedule:
        rows = await self._fetch("schedules/get", name=name)
        if not rows:
            raise await self.no_such(name)
        return StoredSchedule(*rows[0])

    async def no_such(self, name: str) -> NotFound:
        """The error for a name that no schedule has, with the names that there are."""
        names = [row[0] for row in await self._fetch("schedules/names")]
        return NotFound(f"no schedule is called {name!r}; {known_names(name, names)}")

    async def now(self) -> datetime:
        """The database's time."""
        ((now,),) = await self._fetch("schedules/now")
        assert isinstance(now, datetime)
        return now

    async def versions(self, since: datetime) -> Fetched:
        """(name, since, state, spec, watermark) of every version that matters since then, oldest first per schedule."""
        return await self._fetch("schedules/versions", since=since)

    async def ledger(self, name: str, since: datetime, until: datetime) -> Fetched:
        """(due_at, last_due_at, count, outcome, reason, job_id) after `since` up to `until`; see `schedules/ledger.sql`."""
        return await self._fetch("schedules/ledger", name=name, since=since, until=until)

    async def runs_astray(self, since: datetime) -> Fetched:
        """(schedule, due_at, job id, the job id in the ledger or None) of runs that the ledger does not account for."""
        return await self._fetch("schedules/runs_astray", since=since)


def arrays(name: str, moments: Sequence[datetime], *, run_at: datetime, reason: str) -> dict[str, Any]:
    """Ticks that people ask for: fired, with the reason why."""
    count = len(moments)
    return {
        "names": [name] * count,
        "due_ats": list(moments),
        "last_due_ats": list(moments),
        "counts": [1] * count,
        "outcomes": ["fired"] * count,
        "reasons": [reason] * count,
        "run_ats": [run_at] * count,
    }
