"""Schedules as rows, and the ledger of their ticks.

A pass of the planner is one transaction: take the fleet's planning lock without waiting, read what is due, decide in Python
from each row's own spec, record the ticks and enqueue their jobs, advance the rows by compare-and-set. A crash anywhere
leaves all of it or nothing.

A transaction that changes a schedule locks its row, and only then reads the clock; ticks due by then are decided under the old
version, and the new one begins at that time, so no tick falls between two versions and none belongs to both. A planner skips
locked rows: the transaction that changes a schedule decides about its due ticks, and a process frozen halfway delays one
schedule and not the fleet. A change locks only one row, so changes and planners cannot deadlock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson
import psycopg
from psycopg import AsyncConnection, errors

from trueup import faults
from trueup.clock import Clock, elapsed
from trueup.errors import ConfigError, NotFound
from trueup.schedules import spec as specs
from trueup.schedules.decide import Decision, decide
from trueup.schedules.overlap import Runs
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.spec import Spec
from trueup.store.actions import Noting
from trueup.store.db.connect import SILENT_FOR, is_away
from trueup.store.db.load import Statements
from trueup.store.db.own_connection import BOUND, Rows, fetch, milliseconds
from trueup.store.jobs import Database
from trueup.store.refusals import PlanRefused, Refusals, Refused
from trueup.texts import describe, known_names, type_name

MAX_AT_ONCE = 1_000  # schedules planned in one transaction
MAX_TICKS = 10_000  # rows of the ledger written in one transaction, give or take those of one schedule
DECIDE_FOR = (
    0.1  # seconds of deciding in one transaction: the event loop waits, and the server hangs up on the idle after 2 s
)
AHEAD_BY = timedelta(minutes=1)  # a watermark that is further ahead than this was moved while the clock was ahead

UNDECLARED = "no longer declared in the code"  # the note of a schedule that was not retired by a person

State = Literal["active", "paused", "retired", "finished"]


class StaleSchedule(RuntimeError):
    """A pass was undone because a row that it had decided about was not changed, or a job not stored."""


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


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as it is. Field order is that of `schedules/get.sql`."""

    name: str
    origin: str
    state: State
    spec: Mapping[str, str]
    policy: Mapping[str, Any]
    kind: str
    queue: str
    lane: str
    priority: int
    max_attempts: int
    args: Mapping[str, Any]
    version: int
    next_due_at: datetime | None
    decided_until: datetime
    note: str | None
    created_at: datetime
    changed_at: datetime
    refused: Mapping[str, Any] | None = None  # why its tick is refused, how often, and when it is tried again
    meta: Mapping[str, Any] | None = None  # what every job of its ticks carries


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A version of a schedule that this release cannot read."""

    name: str
    version: int
    error: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What a pass did. `held` is False when another planner was planning; `more`: further ticks are due."""

    held: bool = True
    fired: int = 0
    skipped: int = 0
    more: bool = False
    paused: tuple[str, ...] = ()  # because their runs keep dying
    finished: tuple[str, ...] = ()  # their last tick has its verdict
    unreadable: tuple[Unreadable, ...] = ()
    refused: tuple[Refused, ...] = ()  # nothing can be decided about them

    def plus(self, other: Planned) -> Planned:
        """Both passes together, as far as a planner goes by it."""
        more = self.more or other.more
        return Planned(self.held, self.fired + other.fired, self.skipped + other.skipped, more)


class Schedules:
    def __init__(self, database: Database, statements: Statements, clock: Clock, aging: timedelta) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock
        self._aging = aging.total_seconds()
        self.refusals = Refusals(database, statements, clock)

    # -- planning -----------------------------------------------------------------------------------------------------

    async def next_in(self, unreadable: Iterable[Unreadable] = ()) -> float | None:
        """Seconds until the next tick of anything but these, by the database's clock; None when nothing is planned."""
        params = {"now": self._clock.now(), **_names_and_versions(unreadable)}
        ((seconds,),) = await self._database.fetch(self._statements["schedules/next"], params)
        return None if seconds is None else float(seconds)

    async def plan(self, unreadable: Iterable[Unreadable] = (), names: Sequence[str] | None = None) -> Planned:
        """One pass over what is due, except these: all that is not refused, or the named ones.

        Does nothing while another planner holds the lock. Raises PlanRefused, with nothing changed, when one of them is refused.
        """
        versions: dict[str, int] = {}
        try:
            async with self._database.transaction() as connection:
                lock = {"name": f"trueup planner {self._statements.schema}"}
                ((mine,),) = await fetch(connection, self._statements["schedules/lock"], lock)
                if not mine:
                    return Planned(held=False)
                rows = await self._due(connection, now := await self._now(connection), names, unreadable)
                versions = {row[0]: row[3] for row in rows}
                return await self._plan(connection, now, rows)
        except Exception as error:
            if not versions or (is_away(error) and getattr(error, "sqlstate", None) is None):
                raise
            raise PlanRefused(versions, error) from error

    async def refused_due(self, unreadable: Iterable[Unreadable] = ()) -> list[str]:
        """Schedules that were refused and are to be tried again now, each in a pass of its own."""
        return await self.refusals.due(_names_and_versions(unreadable))

    async def _due(
        self,
        connection: AsyncConnection[Any],
        now: datetime,
        names: Sequence[str] | None,
        unreadable: Iterable[Unreadable] = (),
    ) -> Rows:
        given = None if names is None else list(names)
        due = {"now": now, "names": given, "most": MAX_AT_ONCE, **_names_and_versions(unreadable)}
        return await fetch(connection, self._statements["schedules/due"], due)

    async def _plan(self, connection: AsyncConnection[Any], now: datetime, rows: Rows) -> Planned:
        failing = await self._failing(connection, rows)
        decisions: list[tuple[tuple[Any, ...], Decision]] = []
        broken: list[Unreadable] = []
        refused: list[Refused] = []
        ticks, until = 0, elapsed() + DECIDE_FOR
        for row in rows:
            if decisions and (ticks >= MAX_TICKS or elapsed() > until):
                break
            name, version = row[0], row[3]
            try:
                decision = _decide(row, now, failing=name in failing)
            except ConfigError as error:  # written by a newer release: its planners will handle it
                broken.append(Unreadable(name, version, str(error)))
            except Exception as error:  # by no release: what it says cannot be
                refused.append(Refused(name, version, f"{type_name(error)}: {describe(error)}"))
            else:
                decisions.append((row, decision))
                ticks += len(decision.verdicts)
        await self._write(connection, decisions, now)
        finished = [row[0] for row, decision in decisions if decision.next_due is None]
        for name in finished:
            await self._change_state(connection, name, now, "finished", ("active",), None)
        # Not before all due ticks have a verdict: no planner reads a paused schedule again.
        paused = [row[0] for row, d in decisions if row[0] in failing and d.next_due is not None and d.next_due > now]
        for name in paused:
            await self._pause_failing(connection, name, failing[name], now)
        verdicts = [verdict for _, decision in decisions for verdict in decision.verdicts]
        left_over = len(decisions) + len(broken) + len(refused) < len(rows) or len(rows) == MAX_AT_ONCE
        return Planned(
            fired=sum(verdict.fired for verdict in verdicts),
            skipped=sum(verdict.count for verdict in verdicts if not verdict.fired),
            more=left_over or any(d.next_due is not None and d.next_due <= now for _, d in decisions),
            paused=tuple(paused),
            finished=tuple(finished),
            unreadable=tuple(broken),
            refused=tuple(refused),
        )

    async def _now(self, connection: AsyncConnection[Any]) -> datetime:
        ((now,),) = await fetch(connection, self._statements["schedules/now"], {"now": self._clock.now()})
        assert isinstance(now, datetime)
        return now

    async def _failing(self, connection: AsyncConnection[Any], rows: Rows) -> dict[str, int]:
        """Schedules whose latest runs are all dead, as many of them as `pause_after` in their policy says."""
        asked = {row[0]: after for row in rows if isinstance(after := _entry(row[2], "pause_after"), int)}
        if not asked:
            return {}
        params = {"names": list(asked), "mosts": list(asked.values())}
        return {name: asked[name] for (name,) in await fetch(connection, self._statements["schedules/failing"], params)}

    async def _pause_failing(self, connection: AsyncConnection[Any], name: str, dead: int, now: datetime) -> None:
        note = f"the last {dead} {'run is' if dead == 1 else 'runs are'} dead"
        await self._change_state(connection, name, now, "paused", ("active",), note)

    async def _write(
        self, connection: AsyncConnection[Any], decisions: list[tuple[tuple[Any, ...], Decision]], now: datetime
    ) -> None:
        stopping = [row[0] for row, decision in decisions if decision.stop_running]
        if stopping:
            await fetch(
                connection,
                self._statements["schedules/stop_runs"],
                {"now": now, "names": stopping, "channel": self._statements.channel},
            )
        verdicts = [(row[0], verdict) for row, decision in decisions for verdict in decision.verdicts]
        if verdicts:
            await self._fire(connection, verdicts_as_arrays(verdicts), now)
        accepted = [row[0] for row, _ in decisions if row[9]]
        if accepted:
            await fetch(connection, self._statements["schedules/accept"], {"names": accepted})
        if decisions:
            faults.hit("mid_tick")
            advanced = await fetch(
                connection,
                self._statements["schedules/advance"],
                {
                    "names": [row[0] for row, _ in decisions],
                    "versions": [row[3] for row, _ in decisions],
                    "was_due_ats": [row[4] for row, _ in decisions],
                    "next_due_ats": [decision.next_due for _, decision in decisions],
                    "decided_untils": [decision.decided_until for _, decision in decisions],
                },
            )
            if len(advanced) < len(decisions):  # not what we decided about: nothing of this pass may stay
                raise StaleSchedule(
                    "its row was not changed; a trigger on the table schedules that returns null keeps it as it is"
                )

    async def _fire(self, connection: AsyncConnection[Any], arrays: Mapping[str, Any], now: datetime) -> Rows:
        params = {"now": now, "aging": self._aging, "channel": self._statements.channel, **arrays}
        rows = await fetch(connection, self._statements["schedules/fire"], params)
        if any(job_id is not None and not stored for *_, job_id, stored in rows):
            raise StaleSchedule(
                "no job was stored for its tick; a trigger on the table jobs that returns null drops it"
            )
        return rows

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
        noting: Noting | None = None,
    ) -> int | None:
        """`put`, which returns the new version, or None when nothing changed.

        One that was retired as undeclared not longer than `resume_within` ago goes on as if it had never been: ticks since
        then are settled by its policy, as after a downtime.
        """
        async with self._settled(entry.name) as (connection, now):
            at, first = await self._beginning(connection, entry, now, expected)
            rows = await fetch(
                connection,
                self._statements["schedules/put"],
                {
                    "name": entry.name,
                    "expected": expected,
                    "origin": entry.origin,
                    "spec": orjson.dumps(specs.to_json(entry.spec)).decode(),
                    "policy": orjson.dumps(entry.policy.to_json()).decode(),
                    "kind": entry.kind,
                    "queue": entry.queue,
                    "lane": entry.lane,
                    "priority": entry.priority,
                    "max_attempts": entry.max_attempts,
                    "args": entry.args,
                    "meta": entry.meta,
                    "at": at,
                    "next_due_at": first,
                    "undeclared": UNDECLARED,
                    "resumed_since": None if resume_within is None else now - resume_within,
                },
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
            rows = await fetch(connection, self._statements["declarations/undeclared"], asked)
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

    async def _change_state(
        self,
        connection: AsyncConnection[Any],
        name: str,
        now: datetime,
        state: State,
        from_states: Sequence[State],
        note: str | None,
        noting: Noting | None = None,
    ) -> set[str]:
        params = {
            "now": now,
            "names": [name],
            "state": state,
            "from_states": list(from_states),
            "note": note,
            # Only to resume: one that this release cannot read can still be paused.
            "next_due_at": await self._next_due(connection, name, now) if state == "active" else None,
        }
        rows = await fetch(connection, self._statements["schedules/set_state"], params)
        if rows:
            await self._changed(connection, noting)
        return {row[0] for row in rows}

    async def rewind(self, name: str, noting: Noting | None = None) -> bool:
        """Ticks from now on, for a schedule whose watermark was moved while the clock was ahead. False when it is not ahead.

        Ticks that were decided about meanwhile keep their verdict: the ledger refuses to fire them again.
        """
        async with self._database.transaction() as connection:
            now = await self._hold(connection, name)
            params = {"now": now, "name": name, "next_due_at": await self._next_due(connection, name, now)}
            rows = await fetch(connection, self._statements["schedules/rewind"], params)
            if rows:
                await self._changed(connection, noting)
        return bool(rows)

    async def ahead(self) -> list[tuple[str, datetime, float]]:
        """Active schedules that wait for a moment which no tick is at: (name, watermark, seconds until then)."""
        params = {"now": self._clock.now(), "slack": AHEAD_BY.total_seconds()}
        return [tuple(row) for row in await self._database.fetch(self._statements["schedules/ahead"], params)]

    async def _next_due(self, connection: AsyncConnection[Any], name: str, now: datetime) -> datetime | None:
        stored = await self._get(connection, name)
        return None if stored is None else specs.from_json(stored.spec).next_after(now)

    @asynccontextmanager
    async def _settled(self, name: str) -> AsyncIterator[tuple[AsyncConnection[Any], datetime]]:
        """A transaction that has locked one schedule's row and decided about all that is due for it, and its moment for now.

        After a long downtime that is too much for one transaction: then others come before it. What is refused stays undecided, or
        people could neither pause nor mend a schedule whose tick is refused; the audit names such ticks.
        """
        while True:
            async with self._database.transaction() as connection:
                now = await self._hold(connection, name)
                if not await self._settle(connection, name, now):
                    yield connection, now
                    return

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
        await fetch(connection, self._statements["schedules/hold"], {"name": name})
        return await self._now(connection)

    async def _changed(self, connection: AsyncConnection[Any], noting: Noting | None = None) -> None:
        if noting is not None:
            await noting(connection, 1, ())
        await fetch(
            connection,
            self._statements["session/notify"],
            {"channel": self._statements.channel, "payload": "schedules"},
        )

    async def delete(self, name: str, noting: Noting | None = None) -> bool:
        """Delete a schedule that was not declared in code, or a retired one; due ticks are decided first, and its ledger stays."""
        async with self._settled(name) as (connection, now):
            rows = await fetch(connection, self._statements["schedules/delete"], {"name": name, "at": now})
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
            if await self._get(connection, name) is None:
                raise await self.no_such(name)
            rows = await self._fire(connection, arrays(name, [now], run_at=now, reason="triggered"), now)
            if rows and noting is not None:
                await noting(connection, 1, [rows[0][2]])
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
        rows = await self._database.fetch(self._statements["schedules/get"], {"name": name})
        if not rows:
            raise await self.no_such(name)
        return StoredSchedule(*rows[0])

    async def no_such(self, name: str) -> NotFound:
        """The error for a name that no schedule has, with the names that there are."""
        names = [row[0] for row in await self._database.fetch(self._statements["schedules/names"], {})]
        return NotFound(f"no schedule is called {name!r}; {known_names(name, names)}")

    async def _get(self, connection: AsyncConnection[Any], name: str) -> StoredSchedule | None:
        rows = await fetch(connection, self._statements["schedules/get"], {"name": name})
        return StoredSchedule(*rows[0]) if rows else None

    async def now(self) -> datetime:
        """The database's time."""
        ((now,),) = await self._database.fetch(self._statements["schedules/now"], {"now": self._clock.now()})
        assert isinstance(now, datetime)
        return now

    async def versions(self, since: datetime) -> Rows:
        """(name, since, state, spec, watermark) of every version that matters since then, oldest first per schedule."""
        return await self._database.fetch(self._statements["schedules/versions"], {"since": since})

    async def ledger(self, name: str, since: datetime, until: datetime) -> Rows:
        """(due_at, last_due_at, count, outcome, reason, job_id) after `since` up to `until`; see `schedules/ledger.sql`."""
        params = {"name": name, "since": since, "until": until}
        return await self._database.fetch(self._statements["schedules/ledger"], params)

    async def runs_astray(self, since: datetime) -> Rows:
        """(schedule, due_at, job id, the job id in the ledger or None) of runs that the ledger does not account for."""
        return await self._database.fetch(self._statements["schedules/runs_astray"], {"since": since})


def _decide(row: tuple[Any, ...], now: datetime, *, failing: bool) -> Decision:
    name, spec, policy, _, _, decided_until, _, running, waiting, _ = row
    when, how = specs.from_json(spec), SchedulePolicy.from_json(policy)
    return decide(name, when, how, decided_until, now, Runs(running, waiting), failing=failing)


def _entry(policy: object, name: str) -> object:
    return policy.get(name) if isinstance(policy, Mapping) else None


def _names_and_versions(unreadable: Iterable[Unreadable]) -> dict[str, Any]:
    known = list(unreadable)
    return {"unreadable_names": [one.name for one in known], "unreadable_versions": [one.version for one in known]}


def verdicts_as_arrays(verdicts: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "names": [name for name, _ in verdicts],
        "due_ats": [verdict.due_at for _, verdict in verdicts],
        "last_due_ats": [verdict.last_due_at for _, verdict in verdicts],
        "counts": [verdict.count for _, verdict in verdicts],
        "outcomes": ["fired" if verdict.fired else "skipped" for _, verdict in verdicts],
        "reasons": [verdict.reason for _, verdict in verdicts],
        "run_ats": [verdict.run_at for _, verdict in verdicts],
    }


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
