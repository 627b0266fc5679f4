"""Schedules as rows, and the ledger of their ticks.

A pass of the planner is one transaction: take the fleet's planning lock without waiting, read what is due, decide in Python
from each row's own spec, record the ticks and enqueue their jobs, advance the rows by compare-and-set. A crash anywhere
leaves all of it or nothing. Whoever changes a schedule settles first, in the same transaction, what was due under the old
version, so that no tick falls between two versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson
from psycopg import AsyncConnection

from trueup import faults
from trueup.clock import Clock
from trueup.errors import ConfigError, NotFound
from trueup.schedules import spec as specs
from trueup.schedules.decide import Decision, decide
from trueup.schedules.overlap import Runs
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.spec import Spec
from trueup.store.jobs import Database
from trueup.store.line import Rows, fetch
from trueup.store.load import Statements

MOST_AT_ONCE = 1_000  # schedules planned in one transaction
MOST_PASSES = 1_000  # settling one schedule may take several plans after a long downtime

State = Literal["active", "paused", "retired"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A schedule as somebody wants it stored."""

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


@dataclass(frozen=True, slots=True)
class Planned:
    """What a pass did. `held` is False when another planner was at it."""

    held: bool = True
    fired: int = 0
    skipped: int = 0
    more: bool = False
    unreadable: tuple[tuple[str, str], ...] = ()


class Schedules:
    def __init__(self, database: Database, statements: Statements, clock: Clock, aging: timedelta) -> None:
        self._database = database
        self._statements = statements
        self._clock = clock
        self._aging = aging.total_seconds()

    # -- planning -----------------------------------------------------------------------------------------------------

    async def next_in(self) -> float | None:
        """Seconds until the next tick of anything, by the database's clock; None when nothing is planned."""
        rows = await self._database.fetch(self._statements["schedules/now"], {"now": self._clock.now()})
        return None if rows[0][1] is None else float(rows[0][1])

    async def plan(self, unreadable: Iterable[str] = ()) -> Planned:
        """One pass over what is due. Does nothing while another planner holds the lock."""
        async with self._database.transaction() as connection:
            lock = {"name": f"trueup planner {self._statements.schema}"}
            ((mine,),) = await fetch(connection, self._statements["schedules/lock"], lock)
            if not mine:
                return Planned(held=False)
            return await self._plan(connection, None, list(unreadable))

    async def _plan(self, connection: AsyncConnection[Any], names: list[str] | None, unreadable: list[str]) -> Planned:
        ((now, _),) = await fetch(connection, self._statements["schedules/now"], {"now": self._clock.now()})
        due = {"now": now, "unreadable": unreadable, "names": names, "most": MOST_AT_ONCE}
        rows = await fetch(connection, self._statements["schedules/due"], due)
        decisions: list[tuple[tuple[Any, ...], Decision]] = []
        broken: list[tuple[str, str]] = []
        for row in rows:
            name, spec, policy, _, _, decided_until, _, running, waiting = row
            try:
                when, how = specs.from_json(spec), SchedulePolicy.from_json(policy)
            except ConfigError as error:  # written by a newer release: its planners will see to it
                broken.append((name, str(error)))
                continue
            decisions.append((row, decide(name, when, how, decided_until, now, Runs(running, waiting))))
        if faults.ARMED:
            faults.hit("mid_tick")
        await self._write(connection, decisions, now)
        verdicts = [verdict for _, decision in decisions for verdict in decision.verdicts]
        return Planned(
            fired=sum(verdict.fired for verdict in verdicts),
            skipped=sum(verdict.count for verdict in verdicts if not verdict.fired),
            more=len(rows) == MOST_AT_ONCE or any(d.next_due is not None and d.next_due <= now for _, d in decisions),
            unreadable=tuple(broken),
        )

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
        if decisions:
            await fetch(
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

    async def _fire(self, connection: AsyncConnection[Any], arrays: Mapping[str, Any], now: datetime) -> Rows:
        params = {"now": now, "aging": self._aging, "channel": self._statements.channel, **arrays}
        return await fetch(connection, self._statements["schedules/fire"], params)

    # -- changing -----------------------------------------------------------------------------------------------------

    async def put(self, entry: Entry) -> bool:
        """Store a schedule; what was due under its old version is settled first. False when nothing changed."""
        async with self._database.transaction() as connection:
            now = await self._settle(connection, entry.name)
            rows = await fetch(
                connection,
                self._statements["schedules/put"],
                {
                    "name": entry.name,
                    "origin": entry.origin,
                    "spec": orjson.dumps(specs.to_json(entry.spec)).decode(),
                    "policy": orjson.dumps(entry.policy.to_json()).decode(),
                    "kind": entry.kind,
                    "queue": entry.queue,
                    "lane": entry.lane,
                    "priority": entry.priority,
                    "max_attempts": entry.max_attempts,
                    "args": entry.args,
                    "at": now,
                    "next_due_at": entry.spec.next_after(now),
                },
            )
            await self._changed(connection)
        return bool(rows)

    async def pause(self, names: Sequence[str], note: str) -> set[str]:
        return await self._set_state(names, "paused", ("active",), note)

    async def resume(self, names: Sequence[str]) -> set[str]:
        """Active again from now on: ticks of the pause are not made up for."""
        return await self._set_state(names, "active", ("paused",), None)

    async def retire(self, names: Sequence[str], note: str) -> set[str]:
        return await self._set_state(names, "retired", ("active", "paused"), note)

    async def _set_state(
        self, names: Sequence[str], state: State, from_states: Sequence[State], note: str | None
    ) -> set[str]:
        changed: set[str] = set()
        for name in names:
            async with self._database.transaction() as connection:
                now = await self._settle(connection, name)
                stored = await self._get(connection, name)
                next_due_at = None if stored is None else specs.from_json(stored.spec).next_after(now)
                params = {
                    "now": now,
                    "names": [name],
                    "state": state,
                    "from_states": list(from_states),
                    "note": note,
                    "next_due_at": next_due_at,
                }
                changed |= {row[0] for row in await fetch(connection, self._statements["schedules/set_state"], params)}
                await self._changed(connection)
        return changed

    async def _settle(self, connection: AsyncConnection[Any], name: str) -> datetime:
        """Decide about everything that is due for one schedule, whose row stays locked. Returns the moment taken for now."""
        for _ in range(MOST_PASSES):
            planned = await self._plan(connection, [name], [])
            if not planned.more:
                break
        ((now, _),) = await fetch(connection, self._statements["schedules/now"], {"now": self._clock.now()})
        assert isinstance(now, datetime)
        return now

    async def _changed(self, connection: AsyncConnection[Any]) -> None:
        await fetch(
            connection, self._statements["jobs/notify"], {"channel": self._statements.channel, "payload": "schedules"}
        )

    async def delete(self, name: str) -> bool:
        """Forget a schedule that people made, or a retired one; its ledger stays."""
        return bool(await self._database.fetch(self._statements["schedules/delete"], {"name": name}))

    async def removed(self, queues: Sequence[str], declared: Sequence[str]) -> list[str]:
        """Names that code had declared for these queues and declares no more."""
        params = {"queues": list(queues), "declared": list(declared)}
        return [row[0] for row in await self._database.fetch(self._statements["schedules/removed"], params)]

    async def trigger(self, name: str) -> int | None:
        """Fire once now, whatever the schedule says. Returns the job's id; None when a tick of this very moment exists."""
        async with self._database.transaction() as connection:
            if await self._get(connection, name) is None:
                raise NotFound(f"no schedule is called {name!r}")
            ((now, _),) = await fetch(connection, self._statements["schedules/now"], {"now": self._clock.now()})
            rows = await self._fire(connection, arrays([name], [now], reason="triggered"), now)
        return int(rows[0][2]) if rows else None

    async def backfill(self, name: str, moments: Sequence[datetime]) -> int:
        """Fire these ticks unless they have their verdict. Returns how many were fired."""
        async with self._database.transaction() as connection:
            ((now, _),) = await fetch(connection, self._statements["schedules/now"], {"now": self._clock.now()})
            return len(await self._fire(connection, arrays([name] * len(moments), moments, reason="backfill"), now))

    async def skip_tick(self, name: str, due_at: datetime, reason: str) -> bool:
        params = {"name": name, "due_at": due_at, "reason": reason}
        return bool(await self._database.fetch(self._statements["schedules/skip_tick"], params))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, name: str) -> StoredSchedule:
        rows = await self._database.fetch(self._statements["schedules/get"], {"name": name})
        if not rows:
            raise NotFound(f"no schedule is called {name!r}")
        return StoredSchedule(*rows[0])

    async def _get(self, connection: AsyncConnection[Any], name: str) -> StoredSchedule | None:
        rows = await fetch(connection, self._statements["schedules/get"], {"name": name})
        return StoredSchedule(*rows[0]) if rows else None

    async def recent_runs(self, name: str, most: int) -> list[str]:
        """How the latest finished runs ended, newest first."""
        return [
            row[0]
            for row in await self._database.fetch(
                self._statements["schedules/recent_runs"], {"name": name, "most": most}
            )
        ]


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


def arrays(names: Sequence[str], moments: Sequence[datetime], *, reason: str) -> dict[str, Any]:
    """Ticks that people ask for: fired, with the reason why."""
    count = len(moments)
    return {
        "names": list(names),
        "due_ats": list(moments),
        "last_due_ats": list(moments),
        "counts": [1] * count,
        "outcomes": ["fired"] * count,
        "reasons": [reason] * count,
        "run_ats": list(moments),
    }
