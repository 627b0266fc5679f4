"""What people do to schedules: make, edit, pause, resume, delete, trigger, backfill them.

A schedule that people make is a row like one that code declares, and all planners follow it. What code declares is changed
in the code: people can pause, trigger and backfill it, and nothing else. The CLI and every page call these.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack, get_args

from trueup.durations import Duration, Rate, duration_of
from trueup.errors import ConfigError, NotFound
from trueup.events import Events, ScheduleChanged
from trueup.jobs.job import Draft
from trueup.jobs.middleware import encode_meta
from trueup.jobs.names import checked_name
from trueup.jobs.registry import Registry
from trueup.operate.acting import Recorder
from trueup.operate.audit import Audit, audit
from trueup.operate.given import MAX_LIST, check_limit
from trueup.operate.operating import Operating
from trueup.options import wrong
from trueup.schedules import spec as specs
from trueup.schedules.misfire import Missed
from trueup.schedules.overlap import Overlap
from trueup.schedules.policy import SchedulePolicy
from trueup.schedules.preview import Year, in_year
from trueup.schedules.spec import Spec
from trueup.schedules.when import in_utc
from trueup.store.actions import Noting
from trueup.store.db.own_connection import Record
from trueup.store.planning import StoredSchedule
from trueup.store.schedules import Entry
from trueup.store.store import Store

Records: TypeAlias = list[Record]  # defined here because `list` is a method inside the class


PAGE = 100  # ticks backfilled in one transaction
MAX_BACKFILLED = 100_000  # ticks in one backfill; more is taken for a mistake
CONCURRENT = ("skip", "allow")  # policies that need no limit on the job

NO_MORE_TICKS = MappingProxyType(
    {
        "retired": "it is retired, and fires again when code declares it again",
        "finished": "it has fired its last tick; create another one",
    }
)

T = TypeVar("T")
Progress = Callable[[int], None]
Moments: TypeAlias = list[datetime]  # defined here because `list` is a method inside the class


class PolicyOptions(TypedDict, total=False):
    """How ticks are treated, as `@app.cron` takes it."""

    missed: Missed
    catch_up: Duration
    grace: Duration
    overlap: Overlap
    most_queued: int
    jitter: Duration
    pause_after: int | None


@dataclass(frozen=True, slots=True)
class BackfillPreview:
    """What a backfill of a range would do now: `ticks` are in the range, and `to_fire` are those of them that were not fired."""

    ticks: int
    to_fire: tuple[datetime, ...]


class ScheduleOperations(Operating):
    def __init__(
        self,
        store: Store,
        registry: Registry,
        events: Events,
        keep_ticks: timedelta,
        declared: Sequence[str] = (),
    ) -> None:
        super().__init__(store)
        self._schedules = store.schedules
        self._keep_ticks = keep_ticks
        self.declared = declared
        self._registry = registry
        self._events = events
        self._recorder = Recorder(store)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def list(self) -> Records:
        """All schedules by name, each with its last tick and how many of its runs have not ended."""
        return await self._store.views.schedules()

    async def show(self, name: str, ticks: int = 20) -> Record:
        """Everything about one, and its latest ticks, newest first. Raises NotFound."""
        check_limit("ticks", ticks, MAX_LIST, least=0)
        found = await self._store.views.schedule(name)
        if found is None:
            raise await self._schedules.no_such(name)
        return {**found, "ticks": await self._store.views.ticks(name, ticks)}

    async def preview(self, what: str | Spec, year: int) -> Year:
        """A schedule, by its name or as a value, in one year: its first ticks, and the effect of clock changes."""
        spec = specs.from_json((await self._schedules.get(what)).spec) if isinstance(what, str) else what
        return in_year(spec, year)

    async def audit(self, since: Duration = "7d") -> Audit:
        """Expected ticks against the ledger, for the time since then; see `schedules.audit`.

        Also finds schedules that this App's code or a running worker declares, and that are not stored or are retired.
        """
        found = await audit(self._schedules, duration_of("since", since), self._keep_ticks)
        missing = await self._store.declarations.missing(self.declared)
        return found.with_missing(
            {name: f"declared in code, and {state or 'not stored'}" for name, state in missing.items()}
        )

    async def attention(self) -> Record:
        """Names of schedules on which the code of running workers and the database differ: `missing` is declared and does not
        fire, `undeclared` fires although no running worker declares it."""
        declarations = self._store.declarations
        undeclared = [each.name for each in await declarations.undeclared()]
        return {"missing": sorted(await declarations.missing()), "undeclared": undeclared}

    # -- changing: each is recorded, see `app.actions` -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        spec: Spec,
        call: Draft,
        *,
        meta: Mapping[str, Any] | None = None,
        by: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> None:
        """Fire `call` (a `job.call(…)`) at the times of `spec`, from now on.

        Every job of its ticks carries `meta`, by default what `job.using(meta=…).call(…)` was given. What middleware adds to the
        call is left out: each tick is a trace of its own, and does not belong to the request that made the schedule.

        Raises ConfigError when the name is taken, or when the policy lets runs wait for one another and the job is not
        declared with `limit=1`.
        """
        entry = self._entry(checked_name("schedule", name), spec, call, meta, _with(SchedulePolicy(), policy))
        detail = f"{entry.spec.describe()}, job {entry.kind}"
        if not await self._recorded("create", name, by, detail, lambda noting: self._schedules.put(entry, 0, noting)):
            raise ConfigError(await self._name_is_taken(name))
        self._changed(name, "created")

    async def edit(
        self,
        name: str,
        *,
        spec: Spec | None = None,
        call: Draft | None = None,
        meta: Mapping[str, Any] | None = None,
        by: str | None = None,
        **policy: Unpack[PolicyOptions],
    ) -> bool:
        """Change a schedule that people made; what is not given stays, and `meta={}` removes it. False when nothing changed.

        Ticks that were due are settled first, by the old version. Raises ConfigError for one that is declared in code, or
        when another transaction changed it at the same moment.
        """
        stored = await self._made_by_people(name, "changed")
        entry = self._entry(
            name,
            spec or specs.from_json(stored.spec),
            _call(stored) if call is None else _with_meta(call, stored),
            meta,
            _with(SchedulePolicy.from_json(stored.policy), policy),
        )
        given = {"spec": spec, "call": call, "meta": meta}
        changed = [*(part for part, value in given.items() if value is not None), *sorted(policy)]
        version, detail = stored.version, ", ".join(changed)
        if await self._recorded("edit", name, by, detail, lambda noting: self._schedules.put(entry, version, noting)):
            self._changed(name, "edited")
            return True
        if (await self._schedules.get(name)).version != stored.version:
            raise ConfigError(
                f"schedule {name!r} was changed by another transaction at the same time; check it, and repeat your change"
            )
        return False

    async def pause(self, name: str, reason: str = "paused by a person", *, by: str | None = None) -> bool:
        """Fire no ticks until `resume`. False when it was paused already. Raises ConfigError when it has no more ticks."""
        paused = await self._recorded(
            "pause", name, by, reason, lambda noting: self._schedules.pause([name], reason, noting)
        )
        return await self._moved(name, "paused", paused, NO_MORE_TICKS)

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """Fire ticks again from now on; those of the pause are not fired later. False when it was not paused. Raises ConfigError
        when it has no more ticks.
        """
        resumed = await self._recorded("resume", name, by, None, lambda noting: self._schedules.resume([name], noting))
        return await self._moved(name, "resumed", resumed, NO_MORE_TICKS)

    async def retire(self, name: str, reason: str = "retired by a person", *, by: str | None = None) -> bool:
        """End a schedule that code declared and no running worker declares. False when it was retired already.

        Raises ConfigError while a running worker declares it, because that would bring it back, and for one that people made.
        """
        stored = await self._schedules.get(name)
        if stored.origin == "people":
            raise ConfigError(f"schedule {name!r} was not declared in code; delete it instead")
        declared = await self._store.declarations.declared_by(name)
        if declared:
            who = ", ".join(
                sorted(
                    {f"{service or 'unnamed service'}, release {release or 'unknown'}" for service, release in declared}
                )
            )
            raise ConfigError(
                f"schedule {name!r} is declared by running workers ({who}), which would restore it;"
                " remove it from the code first, or pause it"
            )
        retired = await self._recorded(
            "retire", name, by, reason, lambda noting: self._schedules.retire([name], reason, noting)
        )
        return await self._moved(name, "retired", retired)

    async def rewind(self, name: str, *, by: str | None = None) -> bool:
        """Fire ticks again from now on, for a schedule whose watermark is ahead of the clock. False when it is not.

        That happens when the database's clock was ahead for a while: ticks up to that moment count as decided. Ticks that are in
        the ledger keep their verdict and are not fired again.
        """
        rewound = await self._recorded("rewind", name, by, None, lambda noting: self._schedules.rewind(name, noting))
        return await self._moved(name, "rewound", {name} if rewound else set())

    async def delete(self, name: str, *, by: str | None = None) -> None:
        """Forget a schedule that people made, or one that is retired. Its ledger stays."""
        if not await self._recorded("delete", name, by, None, lambda noting: self._schedules.delete(name, noting)):
            await self._made_by_people(name, "deleted")
            raise await self._schedules.no_such(name)  # perhaps deleted a moment ago
        self._changed(name, "deleted")

    # -- firing -------------------------------------------------------------------------------------------------------

    async def trigger(self, name: str, *, by: str | None = None) -> int:
        """Fire once now, whatever the schedule and its policy say, also while it is paused. Returns the job's id."""
        job_id = await self._recorded("trigger", name, by, None, lambda noting: self._schedules.trigger(name, noting))
        if job_id is None:
            raise ConfigError(f"schedule {name!r} has a tick at exactly this time")
        self._changed(name, "triggered")
        return job_id

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        rate: str | Rate = "100/s",
        progress: Progress | None = None,
        by: str | None = None,
    ) -> int:
        """Fire the past ticks from `start` to `end`, both included, that were not fired. Returns how many that were.

        Skipped ticks are fired too. Each page of ticks is fired as a whole or not at all; after an interruption the same call
        continues where it stopped. `overlap` does not apply: `rate` limits how fast runs are enqueued, and the job's limits hold.
        `progress` is called with the number of ticks looked at since the last time.
        """
        pace = Rate.parse(rate)
        ticks = await self.ticks_between(name, start, end)
        size = max(1, min(PAGE, timedelta(seconds=1) // pace.spacing))
        span = f"{start.isoformat()} to {end.isoformat()}"
        action = self._recorder.action("backfill", "schedule", name, by=by, detail=span)
        noting = self._recorder.noting(action)
        total = fired = 0
        for at in range(0, len(ticks), size):
            page = ticks[at : at + size]
            await asyncio.sleep((pace.spacing * fired).total_seconds())  # for those of the page before
            fired = await self._recorder.repeated(action, partial(self._schedules.backfill, name, page, noting))
            total += fired
            if progress is not None:
                progress(len(page))
        if total:
            self._changed(name, f"backfilled with {total} ticks")
        return total

    async def preview_backfill(self, name: str, start: datetime, end: datetime) -> BackfillPreview:
        """A dry run of `backfill`: which ticks it would fire. Nothing is written."""
        ticks = await self.ticks_between(name, start, end)
        if not ticks:
            return BackfillPreview(0, ())
        rows = await self._schedules.ledger(name, ticks[0] - timedelta.resolution, ticks[-1])
        fired = {due_at for due_at, _, _, outcome, *_ in rows if outcome == "fired"}
        return BackfillPreview(len(ticks), tuple(tick for tick in ticks if tick not in fired))

    async def ticks_between(self, name: str, start: datetime, end: datetime) -> Moments:
        """The ticks that a backfill of this range looks at, by the schedule as it is now.

        Raises ConfigError for a range that ends before it starts, has too many ticks, or has one that is still to come.
        """
        if in_utc(start, "start") > in_utc(end, "end"):
            raise ConfigError(f"the range from {start.isoformat()} to {end.isoformat()} ends before it starts")
        spec = specs.from_json((await self._schedules.get(name)).spec)
        # A long range is seconds of arithmetic, which must not hold up the event loop.
        ticks = await asyncio.to_thread(_between, spec, start, end)
        if len(ticks) > MAX_BACKFILLED:
            raise ConfigError(f"more than {MAX_BACKFILLED:,} ticks are in that range; give a shorter one")
        if ticks and ticks[-1] > await self._schedules.now():
            raise ConfigError(
                f"schedule {name!r}: {ticks[-1].isoformat()} is in the future; a backfill takes past times only"
            )
        return ticks

    # -- common -------------------------------------------------------------------------------------------------------

    async def _recorded(
        self, action: str, name: str, by: str | None, detail: str | None, change: Callable[[Noting], Awaitable[T]]
    ) -> T:
        """The change and its record, in one transaction."""
        made = self._recorder.action(action, "schedule", name, by=by, detail=detail)
        noting = self._recorder.noting(made)
        return await self._recorder.repeated(made, lambda: change(noting))

    def _entry(
        self, name: str, spec: Spec, call: Draft, meta: Mapping[str, Any] | None, policy: SchedulePolicy
    ) -> Entry:
        if not isinstance(spec, get_args(Spec)):
            raise ConfigError(f"schedule {name!r}: {spec!r} cannot be stored; give a Cron, an Every or a Once")
        if not isinstance(call, Draft):
            raise wrong(f"schedule {name!r}: call", call, "what job.call(…) returns")
        if call.run_at is not None or call.delay or call.unique_key is not None:
            raise ConfigError(
                f"schedule {name!r}: its ticks decide when; the call cannot have delay=, run_at= or unique="
            )
        controls = self._registry[call.kind].controls
        if controls.fair_by is not None:
            raise ConfigError(
                f"schedule {name!r}: job {call.kind!r} has fair_by=, but runs of a schedule have no key for it"
            )
        if policy.overlap not in CONCURRENT and (controls.limit is None or controls.limit.total != 1):
            raise ConfigError(
                f"schedule {name!r}: overlap={policy.overlap!r} lets runs wait for one another;"
                f" declare job {call.kind!r} with limit=1"
            )
        return Entry(
            name,
            "people",
            spec,
            policy,
            call.kind,
            call.queue,
            call.lane,
            call.max_attempts,
            call.priority,
            call.args,
            call.own_meta if meta is None else encode_meta(f"schedule {name!r}", meta),
        )

    async def _made_by_people(self, name: str, verb: str) -> StoredSchedule:
        stored = await self._schedules.get(name)
        if stored.origin == "code":
            raise ConfigError(
                f"schedule {name!r} is declared in code and is {verb} there; to stop it for now, pause it instead"
            )
        return stored

    async def _name_is_taken(self, name: str) -> str:
        taken = f"a schedule is called {name!r} already"
        try:
            stored = await self._schedules.get(name)
        except NotFound:
            return taken
        if stored.state in ("retired", "finished"):
            return f"{taken}, and is {stored.state}: delete it first"
        return f"{taken}, {'declared in code' if stored.origin == 'code' else 'made by people'}; choose another name"

    async def _moved(self, name: str, what: str, changed: set[str], refused: Mapping[str, str] | None = None) -> bool:
        """`refused` are the states in which it cannot be moved, each with the reason."""
        if not changed:
            state = (await self._schedules.get(name)).state
            if refused is not None and state in refused:
                raise ConfigError(f"schedule {name!r} cannot be {what}: {refused[state]}")
            return False
        self._changed(name, what)
        return True

    def _changed(self, name: str, what: str) -> None:
        self._events.emit(ScheduleChanged(name, what))


def _with(policy: SchedulePolicy, given: PolicyOptions) -> SchedulePolicy:
    """The policy with the given values replaced. Raises ConfigError for an unknown name."""
    unknown = sorted(given.keys() - PolicyOptions.__annotations__.keys())
    if unknown:
        raise ConfigError(
            f"a schedule has no {', '.join(unknown)}; its policy is {', '.join(PolicyOptions.__annotations__)}"
        )
    durations = ("catch_up", "grace", "jitter")
    read: dict[str, Any] = {key: duration_of(key, value) if key in durations else value for key, value in given.items()}
    return replace(policy, **read)


def _between(spec: Spec, start: datetime, end: datetime) -> list[datetime]:
    try:
        return list(islice(spec.between(start - timedelta.resolution, end), MAX_BACKFILLED + 1))
    except OverflowError:
        raise ConfigError(
            f"{start.isoformat()} to {end.isoformat()} is beyond the calendar; give another range"
        ) from None


def _call(stored: StoredSchedule) -> Draft:
    args = json.dumps(stored.args)
    call = Draft(stored.kind, stored.queue, stored.lane, args, stored.max_attempts, priority=stored.priority)
    return _with_meta(call, stored)


def _with_meta(call: Draft, stored: StoredSchedule) -> Draft:
    """The call with the stored `meta`, unless it has its own."""
    if call.own_meta is not None or stored.meta is None:
        return call
    return call._replace(own_meta=json.dumps(stored.meta))
