"""Keeps what the code declares in the database: the lanes of kinds with limits, the schedules, and a record of both.

It declares when the worker registers, and checks every few seconds that all of it is still stored: rows may be missing or old after a
restore, after the promotion of a standby that lagged behind, or because another release changed them. Schedules that are missing or
retired are declared again. If two releases declare a schedule differently, the row follows the living worker that started last.

It also looks for schedules that no living worker declares. Such a schedule is retired after `retire_after`, with a warning, and only
if workers of the same service have been running all that time without it: a service that is down keeps its schedules. A warning names
kinds whose jobs wait although no living worker runs them. The database is the authority on which workers are alive; while it is
away, nothing is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from trueup.clock import elapsed
from trueup.config import Settings
from trueup.events import Events, JobsUnserved, ScheduleChanged, ScheduleRefused, ScheduleRetired, ScheduleUndeclared
from trueup.jobs.limits import LANE_PREFIX
from trueup.jobs.registry import Registry
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.store.db.connect import is_away
from trueup.store.declarations import Declaration, Declarations, DeclaredRow
from trueup.store.jobs import Jobs
from trueup.store.lanes import Lanes
from trueup.store.planning import StillBehind
from trueup.store.schedules import SETTLE_FOR, Entry, Schedules
from trueup.store.views import Views
from trueup.texts import describe
from trueup.work.service import Service, jittered

LOOK_EVERY = 15.0  # seconds: how long a lost row, or a lane that no worker serves any more, stays unnoticed
SURVEY_EVERY = 60.0  # seconds between looks at what no worker declares or runs
MIN_PAUSE = 1.0  # seconds between two looks for jobs in a lane that is not served, however many are announced
REMIND_AFTER = 3600.0  # seconds until a warning about something that has not changed is repeated


class Reminders:
    """Remembers warnings, so that each is given once an hour, and again when its reason was gone and has come back."""

    def __init__(self) -> None:
        self._given: dict[object, float] = {}

    def due(self, about: Iterable[object]) -> set[object]:
        """The warnings to give now, of all that hold now."""
        now, found = elapsed(), set(about)
        self._given = {each: at for each, at in self._given.items() if each in found}
        due = {each for each in found if now >= self._given.get(each, 0.0)}
        self._given |= dict.fromkeys(due, now + REMIND_AFTER)
        return due


@dataclass(frozen=True, slots=True)
class WorkerCode:
    """What a worker's code declares."""

    settings: Settings
    registry: Registry
    queues: tuple[str, ...]
    schedules: tuple[Entry, ...]
    reconciled: tuple[str, ...]
    lanes_of_rows: tuple[str, ...]

    @classmethod
    def of(
        cls,
        settings: Settings,
        registry: Registry,
        queues: Iterable[str],
        schedules: Iterable[Entry],
        reconcilers: Iterable[Reconciler | Purge],
        scans: Iterable[Scan[Any]],
    ) -> WorkerCode:
        names = tuple(each.name for each in (*reconcilers, *scans))
        swept = reconcilers if settings.reconcile else ()
        lanes = tuple(each.lane for each in swept if each.lane is not None)
        return cls(settings, registry, tuple(queues), tuple(schedules), names, lanes)

    def declaration(self) -> Declaration:
        """Made anew each time, because jobs may have been added since the worker was made."""
        served = [job for job in self.registry if job.controls.any and job.queue in self.queues]
        return Declaration(
            self.settings.service,
            self.settings.release,
            self.queues,
            tuple(job.kind for job in self.registry),
            tuple(job.lane for job in served),
            self.schedules,
            self.reconciled,
            self.registry.exhausted(),
        )


class Declarer(Service):
    name = "declarer"

    def __init__(
        self,
        declarations: Declarations,
        schedules: Schedules,
        jobs: Jobs,
        lanes: Lanes,
        views: Views,
        events: Events,
        code: WorkerCode,
    ) -> None:
        super().__init__(events)
        self._declarations = declarations
        self._schedules = schedules
        self._jobs = jobs
        self._lanes = lanes
        self._views = views
        self._code = code
        self._registry = code.registry
        self._entries = {entry.name: entry for entry in code.schedules}
        self._digest = ""
        self._started_at: datetime | None = None  # by the database's clock
        self._versions: dict[str, int] = {}  # of the rows that this code has declared
        self._look_at = self._survey_at = self._adopted_at = 0.0
        self._undeclared, self._unserved = Reminders(), Reminders()

    # -- declaring ----------------------------------------------------------------------------------------------------

    async def begin(self) -> str:
        """Declare everything, before the worker registers. Returns the digest of it, for the worker's row."""
        declaration = self._code.declaration()
        self._digest = declaration.digest
        self._versions.clear()
        self._started_at = await self._declarations.declare(declaration, self._started_at)
        lanes = [*self._wanted_lanes()]
        if lanes:
            await self._lanes.register(lanes)
        await self._adopt()
        await self._put_schedules(await self._declarations.rows(self._digest))
        self._look_at = elapsed() + jittered(LOOK_EVERY)
        self._survey_at = elapsed() + jittered(SURVEY_EVERY)
        return self._digest

    def _wanted_lanes(self) -> Iterable[str]:
        yield from (job.lane for job in self._registry if job.controls.any)
        yield from self._code.lanes_of_rows

    async def _put_schedules(self, rows: Sequence[DeclaredRow]) -> None:
        """Store schedules that are missing or retired, and those that differ, unless a later worker declares them.

        One that is far behind is left to the next look: the ticker decides about its ticks, and the worker starts meanwhile.
        """
        until = elapsed() + SETTLE_FOR
        for row in rows:
            lost = row.version is None or row.state == "retired"
            if not lost and (not row.ours or row.version == self._versions.get(row.name)):
                continue
            entry = self._entries[row.name]
            try:
                version = await self._schedules.put_version(
                    entry, resume_within=self._declarations.retire_after, until=until
                )
            except (psycopg.Error, StillBehind) as error:
                self._refused(row.name, error)
                continue
            if version is not None:
                self.events.emit(ScheduleChanged(row.name, "declared"))
            if row.ours:
                self._versions[row.name] = version or row.version or 0

    def _refused(self, name: str, error: Exception) -> None:
        """Report a schedule that the database refuses, or that is far behind. The others are declared all the same, and the next look tries it again. Raises
        errors that are not about the schedule."""
        if is_away(error):
            raise error
        self.events.emit(ScheduleRefused(name, describe(error), 1, LOOK_EVERY))

    async def _adopt(self) -> None:
        """Move jobs out of lanes that no worker serves, until there are none."""
        plain = [f"{LANE_PREFIX}{job.kind}" for job in self._registry if not job.controls.any]
        while plain and await self._jobs.adopt(plain):
            pass
        self._adopted_at = elapsed()

    # -- looking ------------------------------------------------------------------------------------------------------

    def hear(self, lane: str) -> None:
        """A job was announced in this lane. If its kind has no lane in this code, look soon: perhaps no worker serves the lane."""
        job = self._registry.get(lane.removeprefix(LANE_PREFIX))
        if job is not None and not job.controls.any:
            self.wake()

    def hurry(self) -> None:
        """A schedule has changed: look now."""
        self._look_at = 0.0
        self.wake()

    async def run_once(self) -> float:
        soonest = self._adopted_at + MIN_PAUSE - elapsed()
        if soonest > 0:
            return soonest
        await self._adopt()
        if elapsed() >= self._look_at:
            await self.look()
        if elapsed() >= self._survey_at:
            await self.survey()
        return max(0.0, min(self._look_at, self._survey_at) - elapsed())

    async def look(self) -> None:
        """Check that everything that the code declares is stored, and declare again what is missing."""
        if not self._digest:
            return  # not registered yet
        found = await self._declarations.look(self._digest, self._wanted_lanes(), LOOK_EVERY)
        if found is None:
            await self.begin()
        elif found != (len(self._versions), sum(self._versions.values())) or len(self._versions) < len(self._entries):
            await self._put_schedules(await self._declarations.rows(self._digest))
        self._look_at = elapsed() + jittered(LOOK_EVERY)

    async def survey(self) -> None:
        """Warn about schedules and kinds that no living worker declares, and retire schedules after `retire_after`."""
        await self._survey_schedules()
        await self._survey_kinds()
        await self._declarations.forget()
        self._survey_at = elapsed() + jittered(SURVEY_EVERY)

    async def _survey_schedules(self) -> None:
        found = {each.name: each for each in await self._declarations.undeclared()}
        for each in [each for each in found.values() if each.may_be_retired]:
            try:
                retired = await self._schedules.retire_undeclared(each.name, self._declarations.retire_after)
            except (psycopg.Error, StillBehind) as error:
                self._refused(each.name, error)
                continue
            if retired:
                del found[each.name]
                self.events.emit(ScheduleRetired(each.name, each.queue, _written(each.declared_at)))
        for name in sorted(map(str, self._undeclared.due(found))):
            self.events.emit(ScheduleUndeclared(name, found[name].queue, _written(found[name].declared_at)))

    async def _survey_kinds(self) -> None:
        found = {(each["queue"], each["kind"]): each for each in await self._views.unserved()}
        due = self._unserved.due(found)
        for key, each in found.items():
            if key in due:
                self.events.emit(JobsUnserved(each["kind"], each["queue"], each["waiting"], round(each["oldest_s"], 3)))


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
