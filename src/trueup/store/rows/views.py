"""Read-only queries about reconcilers and scans, for the CLI and the dashboard."""

from __future__ import annotations

from trueup.store.db.own_connection import Record
from trueup.store.db.repository import Repository


class ReconcilerViews(Repository):
    async def reconcilers(self, within_s: float, name: str | None = None) -> list[Record]:
        """Reconcilers on record, or one of them: state, counts of rows, and `outcomes` of the sweeps of the last seconds."""
        return await self._records("views/reconcilers", name=name, within=within_s)

    async def states(self) -> list[Record]:
        """The name of every reconciler and scan on record (`kind` says which), and whether it may sweep. Counts no rows."""
        return await self._records("views/reconciler_states")

    async def scans(self, name: str | None = None) -> list[Record]:
        """Scans on record, or one of them, each with the worker that runs it now (`held_by`)."""
        return await self._records("views/scans", name=name)

    async def sweeps(self, name: str, limit: int) -> list[Record]:
        """The latest sweeps of a reconciler, newest first. `host` and `pid` are None if no worker with that holder is on record."""
        return await self._records("views/sweeps", name=name, limit=limit)

    async def holders(self, name: str, limit: int) -> list[Record]:
        """The processes that hold rows, how many rows are past their lease (`expired`), and a few keys."""
        return await self._records("views/holders", name=name, limit=limit)

    async def errors(self, name: str, limit: int) -> list[Record]:
        """Rows whose last attempt failed, latest first; `again_at` of those that are tried again."""
        return await self._records("views/row_errors", name=name, limit=limit)

    async def proposals(self, name: str, limit: int) -> list[Record]:
        """What was proposed in shadow mode, by kind, most often first, with the latest few as `examples`."""
        found = await self._fetch("views/proposals", name=name, limit=limit)
        return [
            {
                "kind": f"{kind})" if "(" in kind else kind,
                "rows": count,
                "examples": [{"key": key, "proposed": text} for key, text in zip(keys, texts, strict=True)],
            }
            for kind, count, keys, texts in found
        ]

    async def summary(self) -> Record:
        """How many reconcilers are active, paused and resting, rows in quarantine, seconds since anything was swept, the
        names of those whose last sweep failed, and how many rows are known for each that no living worker declares."""
        (record,) = await self._records("views/sweeping")
        return record
