"""What people do to reconcilers and scans: look at them, run one by hand, pause and resume them, decide about quarantine.

Looking, pausing and deciding need only the database; running one needs the App that declares it. The CLI and every page call
these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError
from trueup.events import ReconcilerPaused, ReconcilerResumed, RowsFreed
from trueup.operate import runs
from trueup.operate.acting import Acting
from trueup.operate.quarantine import PAGE, QuarantineOperations
from trueup.operate.reconciler_records import FEW, LATELY
from trueup.operate.runs import DryRun, Progress, Run
from trueup.reconcile.purge import Purge
from trueup.reconcile.reconciler import Reconciler
from trueup.reconcile.scan import Scan
from trueup.store.actions import Action
from trueup.work.leases.hold import Lease
from trueup.work.rows.options import SweepOptions, in_shadow


class ReconcileOperations(QuarantineOperations):
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
        """One whole sweep or scan now, in this process; at most `limit` rows or items. With `shadow` none of your rows is
        written.

        Raises ConfigError while it is paused or rests, unless `force` is given. When it is cancelled, it stops in order.
        `progress` is called with the number of finished rows, and with the total if it is known.

        `within` is for a sweep inside a bounded run: after that time, waiting rows are released, handlers have `drain_for` (the
        setting) to end, and the run's `ending` is `stopped`. With `lease`, every outcome of a handler is fenced by that lease;
        once it is lost, nothing more is written, claimed rows are released, and LostLease is raised.
        """
        _check_limit(limit)
        scan = self._scan(name, shadow)
        if scan is not None:
            _check_unbounded(scan, within, drain_for, lease)
            walk = partial(runs.scan_now, self._store, self._settings, self._events, scan)
            return await self._recorded(name, by, _options(limit), partial(walk, limit=limit, progress=progress))
        bounds = self._bounds(within, drain_for, lease)
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

    def _bounds(self, within: Duration | None, drain_for: Duration | None, lease: Lease | None) -> runs.Bounds:
        return runs.Bounds(
            None if within is None else duration_of("within", within),
            self._settings.drain_for if drain_for is None else duration_of("drain_for", drain_for),
            lease,
        )

    async def _recorded(self, name: str, by: str | None, detail: str | None, run: Callable[[], Awaitable[Run]]) -> Run:
        """A run takes many transactions: record it before the first, and the number of its rows after the last."""
        action = self._recorder.action("run", "reconciler", name, by=by, detail=detail)
        await self._recorder.note(action, 0)
        did = await run()
        await self._recorder.note(action, did.outcomes.get("claimed", did.outcomes.get("items", 0)))
        return did

    async def dry_run(self, name: str, *, limit: int = 20, shadow: bool = False) -> DryRun:
        """What a run would take now. Nothing is claimed or written, and no handler is called unless `shadow` is given.

        With `shadow` handlers are called, and what they write through `tx` and `ctx.transaction()` is rolled back; what they
        do elsewhere is not undone.
        """
        _check_limit(limit)
        scan = self._scan(name, shadow)
        if scan is not None:
            stored = await self._views.scans(name)
            cursor = stored[0]["cursor"] if stored and stored[0]["underway"] else None
            return await runs.dry_scan(scan, cursor, limit)
        declared = await self._runnable(name, shadow)
        if shadow and isinstance(declared, Reconciler):
            declared = in_shadow(declared)
        return await runs.dry_run(self._store, self._settings, declared, limit=limit, call=shadow)

    def _scan(self, name: str, shadow: bool) -> Scan[Any] | None:
        """The scan of this name, unless a reconciler has the name, too."""
        scan = self._scans.get(name) if self._declared.get(name) is None else None
        if scan is not None and shadow:
            raise ConfigError(f"scan {name!r}: its handler's effects cannot be undone, so it has no shadow mode")
        return scan

    async def _runnable(self, name: str, shadow: bool) -> Reconciler | Purge:
        declared = self._declared.get(name)
        if declared is None:
            if name in await self._names():
                raise ConfigError(
                    f"{name!r} is in the database, but this App does not declare it; give the --app that does"
                )
            raise await self._no_such(name)
        if shadow and isinstance(declared, Purge):
            raise ConfigError(f"reconciler {name!r} has no handler to call in shadow mode; a dry run lists its rows")
        return declared

    async def _refuse_paused(self, name: str) -> None:
        stored = await self._stored(name) or {"state": "active"}
        if stored["state"] == "paused":
            raise ConfigError(f"reconciler {name!r} is paused ({stored['note']}); resume it, or force the run")
        if stored["state"] == "resting":
            raise ConfigError(
                f"reconciler {name!r} has an open circuit breaker until {stored['paused_until']:%H:%M:%SZ}: it {stored['note']}; "
                "resume it, or force the run"
            )

    async def pause(self, name: str, reason: str = "paused by a person", *, by: str | None = None) -> bool:
        """Stop all sweeps until `resume`; running handlers finish. False when it was already paused. A declared reconciler that
        no worker has started yet can be paused, too.
        """
        declared = self._declared.get(name)
        if declared is not None and await self._stored(name) is None:
            await self._rows.put(name, declared.selection.table, declared.declared())
        if not await self._set("pause", name, "paused", reason, by):
            return False
        self._events.emit(ReconcilerPaused(name, reason, 0.0))
        return True

    async def resume(self, name: str, *, by: str | None = None) -> bool:
        """Sweep again; if it rests after failures, close its circuit breaker. False when it was neither paused nor at rest."""
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
            raise ConfigError(f"scan {name!r}: scans cannot be paused; remove it from the code, or lengthen its every=")
        raise await self._no_such(name)

    async def forget(self, name: str, progress: Callable[[int], None] | None = None, *, by: str | None = None) -> int:
        """Delete what is stored about a reconciler that was removed or renamed: its pauses, attempts, quarantine and sweeps.
        Returns how many rows it knew. Your table is not touched. Raises ConfigError while a living worker declares it or holds
        rows for it.
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
                "stop the workers that run it, and forget it again"
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
        """The number of rows about which something is stored."""
        await self._known(name)
        stored = await self._views.reconcilers(LATELY.total_seconds(), name)
        return sum(stored[0][state] for state in ("held", "resting", "quarantined", "discarded")) if stored else 0


def _options(limit: int | None, *, shadow: bool = False, force: bool = False) -> str | None:
    """The options of a run, as text for the action's record."""
    given = ["in shadow"] * shadow + ["forced"] * force + ([] if limit is None else [f"limit {limit}"])
    return ", ".join(given) or None


def _check_unbounded(scan: Scan[Any], *bounds: object) -> None:
    if any(bound is not None for bound in bounds):
        raise ConfigError(
            f"scan {scan.name!r}: within=, drain_for= and lease= are for reconcilers; a scan has its own lease"
        )


def _check_limit(limit: int | None) -> None:
    if limit is not None and (isinstance(limit, bool) or limit < 1):
        raise ConfigError(f"limit={limit!r}: a whole number from 1 on is needed")
