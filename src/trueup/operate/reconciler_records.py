"""Reads reconcilers and scans: those that the code declares, and those that only the database knows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from trueup.config import Settings
from trueup.durations import format_duration, parse_duration
from trueup.errors import ConfigError, NotFound
from trueup.events import Events
from trueup.operate import runs
from trueup.operate.acting import Recorder
from trueup.operate.given import MAX_LIST, check_limit
from trueup.operate.operating import Operating
from trueup.reconcile.counts import OUTCOMES
from trueup.reconcile.declare import DeclaredReconcilers
from trueup.reconcile.lateness import GRACE
from trueup.reconcile.scan import Scan
from trueup.store.db.own_connection import Record
from trueup.store.rows.quarantine import Quarantine
from trueup.store.rows.reconcilers import Reconcilers
from trueup.store.rows.views import ReconcilerViews
from trueup.store.store import Store
from trueup.texts import known_names

LATELY = timedelta(hours=24)  # how far back the outcomes of sweeps are counted
FEW = 5  # errors, holders and proposals shown as examples
KEPT = (
    *("state", "note", "paused_until", "paused_keys", "declared_by_worker", "declared_at", "last_swept_at"),
    *("last_error", "last_failed_at", "failures", "next_due_at", "held", "resting", "quarantined", "discarded"),
    "outcomes",
)

Records: TypeAlias = list[Record]  # defined here because `list` is a method inside the class


class ReconcilerRecords(Operating):
    def __init__(
        self,
        store: Store,
        settings: Settings,
        events: Events,
        declared: DeclaredReconcilers,
        scans: Mapping[str, Scan[Any]],
        *,
        knows: bool = True,
    ) -> None:
        """`knows` says whether the App has the application's code, so that what it does not declare is declared nowhere."""
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

    async def list(self) -> Records:
        """All reconcilers and scans by name, those that the code declares and those that only the database knows.

        `declared_here` says whether this App declares it, `declared_by_worker` whether a living worker does (None: unknown),
        `known` whether any worker ever started with it. `state` is active, paused or resting; of a scan active, running or
        failing.
        """
        stored = {each["name"]: each for each in await self._views.reconcilers(LATELY.total_seconds())}
        records = {name: self._record(name, stored.get(name)) for name in {*stored, *self._declared.names()}}
        scans = {each["name"]: each for each in await self._views.scans()}
        records |= {f"scan {name}": self._scan_record(name, scans.get(name)) for name in {*scans, *self._scans}}
        return [records[name] for name in sorted(records, key=lambda name: (records[name]["name"], name))]

    async def show(self, name: str, sweeps: int = 10) -> Record:
        """Everything about one: what `list` says, latest sweeps, who holds rows, last errors, proposals. Raises NotFound."""
        check_limit("sweeps", sweeps, MAX_LIST, least=0)
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
        """How many rows wait for it now; None if it is not declared here, for scans, and if there are too many to count.

        Raises ConfigError when its table does not fit its declaration, or PostgreSQL refuses to count.
        """
        declared = self._declared.get(name)
        if declared is None:
            return None
        async with runs.looking(self._store, self._settings, declared) as rows:
            return await runs.waiting(rows)

    async def behind(self, name: str) -> int | None:
        """How many rows are overdue: they have waited for more than one interval between sweeps and a margin."""
        declared = self._declared.get(name)
        if declared is None or declared.on_demand:  # the program that asks for its sweeps knows when they are late
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
        given = stored or {}
        return {
            **_nothing_known(name, "reconcile"),
            **{each: given[each] for each in KEPT if given.get(each) is not None},
            **{each: declared[each] for each in ("what", "rows", "every", "mode") if each in declared},
            "known": given.get("declared_at") is not None,
            "declared_here": self._is_here(here),
            "declared": declared,
        }

    def _scan_record(self, name: str, stored: Record | None) -> Record:
        """A scan as a record with all the fields of a reconciler's."""
        here, given = self._scans.get(name), stored or {}
        declared = {} if here is None else {"every": format_duration(here.every), "concurrency": here.concurrency}
        state = "running" if given.get("held_by") else "failing" if given.get("error") else "active"
        return {
            **_nothing_known(name, "scan"),
            "every": declared.get("every"),
            "state": state,
            "note": given.get("error"),
            "known": stored is not None,
            "declared_here": self._is_here(here),
            "last_swept_at": given.get("finished_at"),
            "last_error": given.get("error") if state == "failing" else None,
            "failures": given.get("failures", 0),
            "next_due_at": given.get("due_at"),
            "outcomes": {"items": given.get("items", 0), "failed": given.get("failed", 0)},
            "declared": declared,
            "scan": stored,
        }

    def _is_here(self, here: object) -> bool | None:
        return True if here is not None else False if self._knows else None

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


def _nothing_known(name: str, what: str) -> Record:
    return {
        "name": name,
        "what": what,
        "rows": None,
        "every": None,
        "mode": "live",
        "state": "active",
        "note": None,
        "paused_until": None,
        "paused_keys": [],
        "known": False,
        "declared_here": None,
        "declared_by_worker": None,
        "declared_at": None,
        "last_swept_at": None,
        "last_error": None,
        "last_failed_at": None,
        "failures": 0,
        "next_due_at": None,
        **dict.fromkeys(("held", "resting", "quarantined", "discarded"), 0),
        "outcomes": dict.fromkeys(("claimed", *OUTCOMES), 0),
        "declared": {},
    }


def _next_sweep(record: Record) -> datetime | None:
    """About when workers sweep next, according to the declaration; None while it is paused, and before its first sweep."""
    last, every = record["last_swept_at"], record["every"]
    if last is None or every is None or record["state"] == "paused":
        return None
    try:
        due: datetime = last + parse_duration(every)
    except OverflowError:  # "infinity" in the table
        return None
    resting_until: datetime | None = record["paused_until"] if record["state"] == "resting" else None
    return due if resting_until is None else max(due, resting_until)
