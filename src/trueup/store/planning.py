"""Planning: decides about the ticks that are due, records them, and enqueues their jobs.

A pass is one transaction: take the fleet's planning lock without waiting, read what is due, decide in Python from each row's own
spec, record the ticks and enqueue their jobs, advance the rows by compare-and-set. A crash anywhere leaves all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from psycopg import AsyncConnection

from trueup import faults
from trueup.clock import elapsed
from trueup.errors import ConfigError, TrueupError
from trueup.schedules import spec as specs
from trueup.schedules.decide import Decision, decide
from trueup.schedules.overlap import RunCounts
from trueup.schedules.policy import SchedulePolicy
from trueup.store.actions import Noting
from trueup.store.db.connect import is_away
from trueup.store.db.message import Fetched
from trueup.store.db.repository import Repository
from trueup.texts import describe, type_name

FIRST_PAUSE, MAX_PAUSE = timedelta(seconds=1), timedelta(minutes=1)  # until a schedule that is refused is tried again
MAX_TRIED = 20  # schedules that were refused and are tried again in one pass
MAX_AT_ONCE = 1_000  # schedules planned in one transaction
MAX_TICKS = 10_000  # rows of the ledger written in one transaction, give or take those of one schedule
# Seconds of deciding in one transaction: the event loop waits, and the server hangs up on the idle after 2 s.
DECIDE_FOR = 0.1

State = Literal["active", "paused", "retired", "finished"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A version of a schedule whose tick was refused."""

    name: str
    version: int
    error: str


@dataclass(frozen=True, slots=True)
class Noted:
    """How often a schedule was refused, and its current backoff."""

    refused: Refused
    refusals: int
    pause: float


class PlanRefused(Exception):
    """A pass over these schedules, name to version, was undone. The cause is the error."""

    def __init__(self, versions: dict[str, int], error: Exception) -> None:
        super().__init__(str(error))
        self.versions = versions
        self.error = error


class StaleSchedule(RuntimeError):
    """A pass was undone because a row that it had decided about was not changed, or a job not stored."""


class StillBehind(TrueupError):
    """A schedule has so many ticks without a verdict that deciding about them takes longer than the caller may wait."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"schedule {name!r} is far behind: its missed ticks are still being decided, which workers go on with; try again later"
        )


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A stored schedule. Field order is that of `schedules/get.sql`."""

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
class UnreadableSchedule:
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
    paused: tuple[str, ...] = ()  # schedules that were paused because their runs keep dying
    finished: tuple[str, ...] = ()  # schedules whose last tick has its verdict
    unreadable: tuple[UnreadableSchedule, ...] = ()
    refused: tuple[Refused, ...] = ()  # schedules whose ticks cannot be decided or stored

    def plus(self, other: Planned) -> Planned:
        """Both passes together, as far as a planner goes by it."""
        more = self.more or other.more
        return Planned(self.held, self.fired + other.fired, self.skipped + other.skipped, more)


class Planning(Repository):
    async def next_in(self, unreadable: Iterable[UnreadableSchedule] = ()) -> float | None:
        """Seconds until the next tick of anything but these, by the database's clock; None when nothing is planned."""
        ((seconds,),) = await self._fetch("schedules/next", **_names_and_versions(unreadable))
        return None if seconds is None else float(seconds)

    async def plan(self, unreadable: Iterable[UnreadableSchedule] = (), names: Sequence[str] | None = None) -> Planned:
        """One pass over what is due, except these: all that is not refused, or the named ones.

        Does nothing while another planner holds the lock. Raises PlanRefused, with nothing changed, when one of them is refused.
        """
        versions: dict[str, int] = {}
        try:
            async with self._database.transaction() as connection:
                lock = f"trueup planner {self._statements.schema}"
                ((mine,),) = await self._fetch_on(connection, "schedules/lock", name=lock)
                if not mine:
                    return Planned(held=False)
                rows = await self._due(connection, now := await self._now(connection), names, unreadable)
                versions = {row[0]: row[3] for row in rows}
                return await self._plan(connection, now, rows)
        except Exception as error:
            if not versions or (is_away(error) and getattr(error, "sqlstate", None) is None):
                raise
            raise PlanRefused(versions, error) from error

    async def note_refused(self, refused: Sequence[Refused]) -> list[Noted]:
        """Record refusals apart from `schedules`, whose row may be what cannot be changed: all planners of a fleet know them then."""
        by_name = {each.name: each for each in refused}
        rows = await self._fetch(
            "schedules/refuse",
            names=list(by_name),
            versions=[each.version for each in by_name.values()],
            errors=[each.error for each in by_name.values()],
            first=FIRST_PAUSE.total_seconds(),
            longest=MAX_PAUSE.total_seconds(),
        )
        return [Noted(by_name[name], refusals, float(pause)) for name, refusals, pause in rows]

    async def refused_due(self, unreadable: Iterable[UnreadableSchedule] = ()) -> list[str]:
        """Schedules that were refused and are to be tried again now, each in a pass of its own."""
        known = _names_and_versions(unreadable)
        return [name for (name,) in await self._fetch("schedules/refused_due", most=MAX_TRIED, **known)]

    async def _due(
        self,
        connection: AsyncConnection[Any],
        now: datetime,
        names: Sequence[str] | None,
        unreadable: Iterable[UnreadableSchedule] = (),
    ) -> Fetched:
        given = None if names is None else list(names)
        due = {"now": now, "names": given, "most": MAX_AT_ONCE, **_names_and_versions(unreadable)}
        return await self._fetch_on(connection, "schedules/due", **due)

    async def _plan(self, connection: AsyncConnection[Any], now: datetime, rows: Fetched) -> Planned:
        failing = await self._failing(connection, rows)
        decisions: list[tuple[tuple[Any, ...], Decision]] = []
        broken: list[UnreadableSchedule] = []
        refused: list[Refused] = []
        ticks, until = 0, elapsed() + DECIDE_FOR
        # The latest first: one that is years behind, after a wrong clock, must not keep the others from their ticks.
        for row in reversed(rows):
            if decisions and (ticks >= MAX_TICKS or elapsed() > until):
                break
            name, version = row[0], row[3]
            try:
                decision = _decide(row, now, failing=name in failing)
            except ConfigError as error:  # written by a newer release: its planners will handle it
                broken.append(UnreadableSchedule(name, version, str(error)))
            except Exception as error:  # no release writes this
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
            dead = failing[name]
            note = f"the last {dead} {'run is' if dead == 1 else 'runs are'} dead"
            await self._change_state(connection, name, now, "paused", ("active",), note)
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
        ((now,),) = await self._fetch_on(connection, "schedules/now")
        assert isinstance(now, datetime)
        return now

    async def _failing(self, connection: AsyncConnection[Any], rows: Fetched) -> dict[str, int]:
        """Schedules whose latest runs are all dead, as many of them as `pause_after` in their policy says."""
        asked = {row[0]: after for row in rows if isinstance(after := _entry(row[2], "pause_after"), int)}
        if not asked:
            return {}
        dead = await self._fetch_on(connection, "schedules/failing", names=list(asked), mosts=list(asked.values()))
        return {name: asked[name] for (name,) in dead}

    async def _write(
        self, connection: AsyncConnection[Any], decisions: list[tuple[tuple[Any, ...], Decision]], now: datetime
    ) -> None:
        stopping = [row[0] for row, decision in decisions if decision.stop_running]
        if stopping:
            await self._fetch_on(connection, "schedules/stop_runs", now=now, names=stopping)
        verdicts = [(row[0], verdict) for row, decision in decisions for verdict in decision.verdicts]
        if verdicts:
            await self._fire(connection, verdicts_as_arrays(verdicts), now)
        accepted = [row[0] for row, _ in decisions if row[9]]
        if accepted:
            await self._fetch_on(connection, "schedules/accept", names=accepted)
        if decisions:
            faults.hit("mid_tick")
            advanced = await self._fetch_on(
                connection,
                "schedules/advance",
                names=[row[0] for row, _ in decisions],
                versions=[row[3] for row, _ in decisions],
                was_due_ats=[row[4] for row, _ in decisions],
                next_due_ats=[decision.next_due for _, decision in decisions],
                decided_untils=[decision.decided_until for _, decision in decisions],
            )
            if len(advanced) < len(decisions):  # one has changed since it was read: nothing of this pass may stay
                raise StaleSchedule(
                    "its row was not changed; a trigger on the table schedules that returns null keeps it as it is"
                )

    async def _fire(self, connection: AsyncConnection[Any], arrays: Mapping[str, Any], now: datetime) -> Fetched:
        rows = await self._fetch_on(connection, "schedules/fire", now=now, **arrays)
        if any(job_id is not None and not stored for *_, job_id, stored in rows):
            raise StaleSchedule(
                "no job was stored for its tick; a trigger on the table jobs that returns null drops it"
            )
        return rows

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
        # Only to resume: one that this release cannot read can still be paused.
        next_due_at = await self._next_due(connection, name, now) if state == "active" else None
        rows = await self._fetch_on(
            connection,
            "schedules/set_state",
            now=now,
            names=[name],
            state=state,
            from_states=list(from_states),
            note=note,
            next_due_at=next_due_at,
        )
        if rows:
            await self._changed(connection, noting)
        return {row[0] for row in rows}

    async def _changed(self, connection: AsyncConnection[Any], noting: Noting | None = None) -> None:
        if noting is not None:
            await noting(connection, 1, ())
        await self._fetch_on(connection, "session/notify", payload="schedules")

    async def _next_due(self, connection: AsyncConnection[Any], name: str, now: datetime) -> datetime | None:
        stored = await self._get(connection, name)
        return None if stored is None else specs.from_json(stored.spec).next_after(now)

    async def _get(self, connection: AsyncConnection[Any], name: str) -> StoredSchedule | None:
        rows = await self._fetch_on(connection, "schedules/get", name=name)
        return StoredSchedule(*rows[0]) if rows else None


def _decide(row: tuple[Any, ...], now: datetime, *, failing: bool) -> Decision:
    name, spec, policy, _, _, decided_until, _, running, waiting, _ = row
    when, how = specs.from_json(spec), SchedulePolicy.from_json(policy)
    return decide(name, when, how, decided_until, now, RunCounts(running, waiting), failing=failing)


def _entry(policy: object, name: str) -> object:
    return policy.get(name) if isinstance(policy, Mapping) else None


def _names_and_versions(unreadable: Iterable[UnreadableSchedule]) -> dict[str, Any]:
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
