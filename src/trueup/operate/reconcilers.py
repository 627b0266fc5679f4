"""What people do to reconcilers and scans: look at them, run one by hand, pause and resume them, decide about quarantine.

Looking, pausing and deciding need only the database; running one needs the App that declares it. The CLI and every page call
these.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from trueup.config import Settings
from trueup.durations import Duration, duration_of, format_duration, parse_duration
from trueup.errors import ConfigError, NotFound
from trueup.events import Events, ReconcilerPaused, ReconcilerResumed, RowsFreed
from trueup.operate import runs
from trueup.operate.acting import Acting, Recorder
from trueup.operate.operating import Operating, twin
from trueup.operate.runs import DryRun, Progress, Run
from trueup.reconcile.declare import Reconcilers as Declared
from trueup.reconcile.lateness import GRACE
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.store.actions import Action
from trueup.store.rows.quarantine import Quarantine
from trueup.store.rows.reconcilers import Reconcilers
from trueup.store.rows.views import OUTCOMES, ReconcilerViews
from trueup.store.store import Store
from trueup.store.views import Record
from trueup.texts import known_names
from trueup.work.leases.hold import Lease
from trueup.work.rows.options import SweepOptions, in_shadow

LATELY = timedelta(hours=24)  # how far back the outcomes of sweeps are counted
PAGE = 500  # rows per statement in commands over many
FREED = {"release": "released", "discard": "discarded"}  # actions, and what events call them
FEW = 5  # examples of whatever there may be many of

Move: TypeAlias = Callable[[Quarantine, str, Sequence[str]], Awaitable[set[str]]]
Records: TypeAlias = list[Record]  # named here, because in the class `list` is a method


class ReconcileOperations(Operating):
    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: Events,
        declared: Declared,
        scans: Mapping[str, Scan[Any]],
        *,
        knows: bool = True,
    ) -> None:
        """`knows`: whether what is not declared here is declared nowhere; without an application's code nobody can tell."""
        super().__init__(store)
        self._settings = settings
        self._events = events
        self._declared = declared
        self._scans = scans
        self._knows = knows
        self._views = ReconcilerViews(store.pool, store.statements)
        self._rows = Reconcilers(store.pool, store.statements)
        self._quarantine = Quarantine(store.pool, store.statements)
        self._recorder = Recorder(store)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def list(self) -> Records:
        """All reconcilers and scans by name, those that the code declares and those that only the database knows.

        `declared_here` says whether this App declares it, `declared_by_worker` whether a living worker does (None: no telling),
        `known` whether any worker ever started with it.
        `state` is active, paused or resting; of a scan active, running or failing.
        """
        stored = {each["name"]: each for each in await self._views.reconcilers(LATELY.total_seconds())}
        records = {name: self._record(name, stored.get(name)) for name in {*stored, *self._declared.names()}}
        scans = {each["name"]: each for each in await self._views.scans()}
        records |= {f"scan {name}": self._scan_record(name, scans.get(name)) for name in {*scans, *self._scans}}
        return [records[name] for name in sorted(records, key=lambda name: (records[name]["name"], name))]

    async def show(self, name: str, sweeps: int = 10) -> Record:
        """Everything about one: what `list` says, latest sweeps, who holds rows, last errors, proposals. Raises NotFound."""
        stored = await self._views.reconcilers(LATELY.total_seconds(), name)
        if not stored and self._declared.get(name) is None:
            return await self._show_scan(name)
        record = self._record(name, stored[0] if stored else None)
        return {
            **record,
            "next_sweep_at": _next_sweep(record),
            "sweeps": await self._views.sweeps(name, sweeps),
            "held_by": await self._views.holders(name, FEW),
            "errors": await self._views.errors(name, FEW),
            "proposals": await self._views.proposals(name, 3),
        }

    async def summary(self) -> Record:
        """How many are active, paused and resting, rows in quarantine, and how long ago anything was swept."""
        return await self._views.summary()

    async def waiting(self, name: str) -> int | None:
        """How many rows there are for one now; None for what is not declared here, for scans, and beyond counting."""
        declared = self._declared.get(name)
        if declared is None:
            return None
        async with runs.looking(self._store, self._settings, declared) as rows:
            return await runs.waiting(rows)

    async def behind(self, name: str) -> int | None:
        """How many rows have waited longer than they would with everything in order: for a sweep, and a little more."""
        declared = self._declared.get(name)
        if declared is None or declared.on_demand:  # whoever asks for its sweeps knows when they are late
            return None
        try:
            async with runs.looking(self._store, self._settings, declared) as rows:
                return await runs.waiting(rows, late_by=declared.every + GRACE)
        except ConfigError:  # its table is not (yet) as it should be; a worker's start says so
            return None

    async def _show_scan(self, name: str) -> Record:
        stored = await self._views.scans(name)
        if not stored and name not in self._scans:
            raise await self._no_such(name)
        record = self._scan_record(name, stored[0] if stored else None)
        return {**record, "sweeps": [], "held_by": [], "errors": [], "proposals": []}

    def _record(self, name: str, stored: Record | None) -> Record:
        here = self._declared.get(name)
        declared = dict(stored["declared"] or {}) if stored is not None else {}
        if not declared and here is not None:
            declared = dict(here.declared())
        stored = stored or {"outcomes": dict.fromkeys(OUTCOMES, 0)}
        return {
            "name": name,
            "what": declared.get("what", "reconcile"),
            "rows": declared.get("rows"),
            "every": declared.get("every"),
            "mode": declared.get("mode", "live"),
            "state": stored.get("state") or "active",
            "note": stored.get("note"),
            "paused_until": stored.get("paused_until"),
            "paused_keys": stored.get("paused_keys") or [],
            "known": stored.get("declared_at") is not None,
            "declared_here": self._is_here(here),
            "declared_by_worker": stored.get("declared_by_worker"),
            "declared_at": stored.get("declared_at"),
            "last_swept_at": stored.get("last_swept_at"),
            "last_error": stored.get("last_error"),
            "last_failed_at": stored.get("last_failed_at"),
            "failures": stored.get("failures", 0),
            "next_due_at": stored.get("next_due_at"),
            **{each: stored.get(each, 0) for each in ("held", "resting", "quarantined", "discarded")},
            "outcomes": stored["outcomes"],
            "declared": declared,
        }

    def _scan_record(self, name: str, stored: Record | None) -> Record:
        """With everything that the record of a reconciler has."""
        here = self._scans.get(name)
        known = stored is not None
        stored = stored or {}
        declared = {} if here is None else {"every": format_duration(here.every), "concurrency": here.concurrency}
        state = "running" if stored.get("held_by") else "failing" if stored.get("error") else "active"
        return {
            "name": name,
            "what": "scan",
            "rows": None,
            "every": declared.get("every"),
            "mode": "live",
            "state": state,
            "note": stored.get("error"),
            "paused_until": None,
            "paused_keys": [],
            "known": known,
            "declared_here": self._is_here(here),
            "declared_by_worker": None,
            "declared_at": None,
            "last_swept_at": stored.get("finished_at"),
            "last_error": stored.get("error") if state == "failing" else None,
            "last_failed_at": None,
            "failures": stored.get("failures", 0),
            "next_due_at": stored.get("due_at"),
            **dict.fromkeys(("held", "resting", "quarantined", "discarded"), 0),
            "outcomes": {"items": stored.get("items", 0), "failed": stored.get("failed", 0)},
            "declared": declared,
            "scan": stored or None,
        }

    def _is_here(self, here: object) -> bool | None:
        return True if here is not None else False if self._knows else None

    # -- running ------------------------------------------------------------------------------------------------------

    async def run(
        self,
        name: str,
        *,
        limit: int | None = None,
        shadow: bool = False,
        force: bool = False,
        progress: Progress | None = None,
        by: str | None = None,
        within: Duration | None = None,
        drain_for: Duration | None = None,
        lease: Lease | None = None,
    ) -> Run:
        """One whole sweep or scan now, in this process; at most `limit` rows or items. With `shadow` nothing of yours is written.

        Raises ConfigError while it is paused or rests, unless `force` is given. Cancelled, it stops in order. `progress` is
        called with how many rows were seen through, and how many there were if that is known.

        For a sweep inside a run that is bounded itself: after `within`, rows that were not begun go back, handlers may end within
        `drain_for` (the setting), and the run's `ending` is `stopped`. With `lease`, every outcome of a handler is fenced by that
        lease; once it is lost, nothing is written any more, what is in hand goes back, and LostLease is raised.
        """
        _check_limit(limit)
        scan = self._scans.get(name)
        if scan is not None and self._declared.get(name) is None:
            if shadow:
                raise ConfigError(
                    f"scan {name!r}: what its handler does cannot be undone; there is no shadow mode for it"
                )
            if within is not None or drain_for is not None or lease is not None:
                raise ConfigError(
                    f"scan {name!r}: within=, drain_for= and lease= are for reconcilers; a scan has its own lease"
                )
            with_limit = partial(runs.scan_now, limit=limit, progress=progress)
            return await self._recorded(
                name, by, _options(limit), lambda: with_limit(self._store, self._settings, self._events, scan)
            )
        bounds = runs.Bounds(
            None if within is None else duration_of("within", within),
            self._settings.drain_for if drain_for is None else duration_of("drain_for", drain_for),
            lease,
        )
        declared = await self._runnable(name, shadow)
        if not force:
            await self._refuse_paused(name)
        live = isinstance(declared, Reconciler) and declared.mode == "live"
        options = SweepOptions(limit, force=force, shadow=shadow and live)
        sweep = partial(runs.sweep, self._store, self._settings, self._events, declared, options)
        sweep = partial(sweep, progress=progress, bounds=bounds)
        if within is not None or lease is not None:  # part of a program's own run, not what a person did
            return await sweep()
        return await self._recorded(name, by, _options(limit, shadow=shadow, force=force), sweep)

    async def _recorded(self, name: str, by: str | None, detail: str | None, run: Callable[[], Awaitable[Run]]) -> Run:
        """A run is many transactions: it is recorded before the first, and what became of how many rows after the last."""
        action = self._recorder.action("run", "reconciler", name, by=by, detail=detail)
        await self._recorder.note(action, 0)
        did = await run()
        await self._recorder.note(action, did.outcomes.get("claimed", did.outcomes.get("items", 0)))
        return did

    async def dry_run(self, name: str, *, limit: int = 20, shadow: bool = False) -> DryRun:
        """What a run would have in hand now. Nothing is claimed or written, and no handler is called unless `shadow` is given.

        With `shadow` handlers are called, and what they write through `tx` and `ctx.transaction()` is rolled back; what they
        do elsewhere is not undone.
        """
        _check_limit(limit)
        scan = self._scans.get(name)
        if scan is not None and self._declared.get(name) is None:
            if shadow:
                raise ConfigError(
                    f"scan {name!r}: what its handler does cannot be undone; there is no shadow mode for it"
                )
            stored = await self._views.scans(name)
            cursor = stored[0]["cursor"] if stored and stored[0]["underway"] else None
            return await runs.dry_scan(scan, cursor, limit)
        declared = await self._runnable(name, shadow)
        if shadow and isinstance(declared, Reconciler):
            declared = in_shadow(declared)
        return await runs.dry_run(self._store, self._settings, declared, limit=limit, call=shadow)

    async def _runnable(self, name: str, shadow: bool) -> Reconciler | Purge:
        declared = self._declared.get(name)
        if declared is None:
            if name in await self._names():
                raise ConfigError(
                    f"{name!r} is known to the database, but not declared by this App; give the --app that does"
                )
            raise await self._no_such(name)
        if shadow and isinstance(declared, Purge):
            raise ConfigError(
                f"reconciler {name!r} has no handler that could be called in shadow; a dry run lists its rows"
            )
        return declared

    async def _refuse_paused(self, name: str) -> None:
        stored = await self._stored(name) or {"state": "active"}
        if stored["state"] == "paused":
            raise ConfigError(
                f"reconciler {name!r} was paused by a person: {stored['note']}; resume it, or force the run"
            )
        if stored["state"] == "resting":
            raise ConfigError(
                f"reconciler {name!r} rests until {stored['paused_until']:%H:%M:%SZ}: it {stored['note']}; "
                "resume it, or force the run"
            )

    # -- pausing ------------------------------------------------------------------------------------------------------

    async def pause(self, name: str, reason: str = "paused by a person", *, by: str | None = None) -> bool:
        """No sweeps by anybody until it is resumed; handlers that run are seen through. False when it was paused already.

        One that is declared and was never started may be paused, too.
        """
        declared = self._declared.get(name)
        if declared is not None and await self._stored(name) is None:
            await self._rows.put(name, declared.selection.table, declared.declared())
        if not await self._set("pause", name, "paused", reason, by):
            return False
        self._events.emit(ReconcilerPaused(name, reason, 0.0))
        return True

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """Sweeps again, also when it rests after failures. False when it was neither paused nor at rest."""
        if not await self._set("resume", name, "active", None, by):
            return False
        self._events.emit(ReconcilerResumed(name))
        return True

    async def _set(self, action: str, name: str, state: str, note: str | None, by: str | None) -> bool:
        async def change(acting: Acting) -> bool:
            changed = await self._rows.on(acting.database).set_state(name, state, note)
            await acting.note(int(changed))
            return changed

        if await self._recorder.carry_out(
            self._recorder.action(action, "reconciler", name, by=by, detail=note), change
        ):
            return True
        if await self._stored(name) is not None or self._declared.get(name) is not None:
            return False
        if name in await self._names():
            raise ConfigError(f"scan {name!r}: scans cannot be paused; take it out of the code, or lengthen its every=")
        raise await self._no_such(name)

    # -- forgetting ---------------------------------------------------------------------------------------------------

    async def forget(self, name: str, progress: Callable[[int], None] | None = None, *, by: str | None = None) -> int:
        """Forget a reconciler that was removed or renamed: its rests, attempts, quarantine, sweeps. Returns how many rows it knew.

        Rows of the table are not touched. Raises ConfigError while a living worker declares it or holds rows for it.
        """
        await self._known(name)
        workers = await self._rows.declared_by(name)
        if workers:
            raise ConfigError(
                f"reconciler {name!r} is declared by a living worker ({', '.join(workers[:FEW])}); "
                "remove it from the code and restart the workers first"
            )
        # Each page is recorded with what it forgot, so an interrupted one is visible, too.
        action = self._recorder.action("forget", "reconciler", name, by=by)
        total, (gone, held) = 0, await self._forget_page(name, action)
        while gone:
            total += gone
            if progress is not None:
                progress(gone)
            gone, held = await self._forget_page(name, action)
        if held:
            raise ConfigError(
                f"reconciler {name!r}: {held:,} rows are held by a worker; {total:,} others were forgotten; "
                "stop the workers that have it, and forget it again"
            )

        async def forget(acting: Acting) -> None:
            known = await self._rows.on(acting.database).forget(name)
            await acting.note(0 if total else int(known))

        await self._recorder.carry_out(action, forget)
        if total:
            self._events.emit(RowsFreed(name, total, "forgotten"))
        return total

    async def _forget_page(self, name: str, action: Action) -> tuple[int, int]:
        async def forget(acting: Acting) -> tuple[int, int]:
            gone, held = await self._rows.on(acting.database).forget_rows(name, PAGE)
            await acting.note(gone)
            return gone, held

        return await self._recorder.carry_out(action, forget)

    async def count_known(self, name: str) -> int:
        """About how many rows something is known."""
        await self._known(name)
        stored = await self._views.reconcilers(LATELY.total_seconds(), name)
        return sum(stored[0][state] for state in ("held", "resting", "quarantined", "discarded")) if stored else 0

    # -- quarantine ---------------------------------------------------------------------------------------------------

    async def quarantined(self, name: str | None = None, *, limit: int = 50, discarded: bool = False) -> Records:
        """Rows in quarantine, or discarded from there, latest first, each with its last error."""
        if name is not None:
            await self._known(name)
        return await self._quarantine.listed(name, limit, discarded=discarded)

    async def quarantined_row(self, name: str, key: str) -> Record:
        """Everything about one row that was set aside, with all its errors. Raises NotFound, saying how it is with the row."""
        await self._known(name)
        spellings = _spellings(key)
        found = await self._quarantine.show(name, spellings)
        record = next((found[each] for each in spellings if each in found), None)
        if record is None:
            raise NotFound(f"{name} has no row {key} in quarantine; nothing is known about such a row")
        if record["state"] not in ("quarantined", "discarded"):
            raise NotFound(f"{name} has no row {key} in quarantine; that row is {record['state']}")
        return record

    async def release(self, name: str, keys: Sequence[str], *, by: str | None = None) -> set[str]:
        """Have rows looked at anew, soon and with all attempts; also discarded ones. Returns those of the keys that were there."""
        return await self._free("release", name, keys, Quarantine.release, by)

    async def discard(self, name: str, keys: Sequence[str], *, by: str | None = None) -> set[str]:
        """Leave rows alone for good, while they stay in their state. Returns those of the keys that were in quarantine."""
        return await self._free("discard", name, keys, Quarantine.discard, by)

    async def release_all(
        self, name: str, progress: Callable[[int], None] | None = None, *, by: str | None = None
    ) -> int:
        """Release every row that is in quarantine now, a page at a time. Returns how many."""

        async def release(quarantine: Quarantine, name: str, keys: Sequence[str]) -> set[str]:
            return await quarantine.release(name, keys, ("quarantined",))

        return await self._free_all("release", name, release, progress, by)

    async def discard_all(
        self, name: str, progress: Callable[[int], None] | None = None, *, by: str | None = None
    ) -> int:
        """Discard every row that is in quarantine now, a page at a time. Returns how many."""
        return await self._free_all("discard", name, Quarantine.discard, progress, by)

    async def count_quarantined(self, name: str) -> int:
        await self._known(name)
        return (await self._quarantine.count(name))[0]

    async def _free(self, action: str, name: str, keys: Sequence[str], move: Move, by: str | None) -> set[str]:
        await self._known(name)
        spellings = [spelling for key in keys for spelling in _spellings(key)]
        moved = await self._moved(self._recorder.action(action, "row", name, by=by), name, move, spellings)
        if moved:
            self._events.emit(RowsFreed(name, len(moved), FREED[action]))
        return {key for key in keys if moved.intersection(_spellings(key))}

    async def _free_all(
        self, action: str, name: str, move: Move, progress: Callable[[int], None] | None, by: str | None
    ) -> int:
        await self._known(name)
        _, until = await self._quarantine.count(name)  # what fails again meanwhile is not released once more
        recorded = self._recorder.action(action, "row", name, by=by, detail="all")
        total = 0
        while keys := await self._quarantine.keys(name, until, PAGE):
            total += len(await self._moved(recorded, name, move, keys))
            if progress is not None:
                progress(len(keys))
        if total:
            self._events.emit(RowsFreed(name, total, FREED[action]))
        return total

    async def _moved(self, action: Action, name: str, move: Move, keys: Sequence[str]) -> set[str]:
        """Move rows and record it, in one transaction. Returns those that were moved."""

        async def work(acting: Acting) -> set[str]:
            moved = await move(self._quarantine.on(acting.database), name, keys)
            await acting.note(len(moved), moved)
            return moved

        return await self._recorder.carry_out(action, work)

    quarantined_sync = twin(quarantined)
    quarantined_row_sync = twin(quarantined_row)
    release_sync = twin(release)
    discard_sync = twin(discard)

    # -- names --------------------------------------------------------------------------------------------------------

    async def _names(self) -> set[str]:
        return {*(each["name"] for each in await self._views.states()), *self._declared.names(), *self._scans}

    async def _stored(self, name: str) -> Record | None:
        """What the database says of this reconciler, without counting anything."""
        states = await self._views.states()
        return next((each for each in states if (each["name"], each["kind"]) == (name, "reconciler")), None)

    async def _known(self, name: str) -> None:
        """Raises NotFound when neither the code nor the database knows such a reconciler."""
        if self._declared.get(name) is None and await self._stored(name) is None:
            raise await self._no_such(name)

    async def _no_such(self, name: str) -> NotFound:
        names = await self._names()
        return NotFound(f"no reconciler is called {name!r}; {known_names(name, names)}")


def _next_sweep(record: Record) -> datetime | None:
    """About when workers sweep next, by what is declared; None while nobody may, or nobody has yet."""
    last, every = record["last_swept_at"], record["every"]
    if last is None or every is None or record["state"] == "paused":
        return None
    try:
        due: datetime = last + parse_duration(every)
    except OverflowError:  # "infinity" in the table
        return None
    resting_until: datetime | None = record["paused_until"] if record["state"] == "resting" else None
    return due if resting_until is None else max(due, resting_until)


def _spellings(key: str) -> list[str]:
    """The key as given and, when it is written as a JSON array, as PostgreSQL writes a key of several columns."""
    try:
        parts = json.loads(key, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return [key]
    if not isinstance(parts, list) or not all(isinstance(part, str | bool) for part in parts):
        return [key]
    texts = [str(part).lower() if isinstance(part, bool) else part for part in parts]
    return list(dict.fromkeys([key, json.dumps(texts, ensure_ascii=False)]))


def _options(limit: int | None, *, shadow: bool = False, force: bool = False) -> str | None:
    """How a run was asked for, in words."""
    given = ["in shadow"] * shadow + ["forced"] * force + ([] if limit is None else [f"limit {limit}"])
    return ", ".join(given) or None


def _check_limit(limit: int | None) -> None:
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise ConfigError(f"limit={limit!r}: a whole number from 1 on is needed")
