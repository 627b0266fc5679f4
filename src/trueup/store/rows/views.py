"""Read-only queries about reconcilers and scans, for the CLI and the dashboard."""

from __future__ import annotations

from trueup.store.db.own_connection import Record
from trueup.store.db.repository import Repository


class ReconcilerViews(Repository):
    async def reconcilers(self, within_s: float, name: str | None = None) -> list[Record]:
        """Those the database knows, or one: its state, counts of rows, and `outcomes` of the sweeps of the last seconds."""
        return await self._records("views/reconcilers", name=name, within=within_s)

    async def states(self) -> list[Record]:
        """Every name the database knows, of reconcilers and scans (`kind`), and who may sweep. Counts nothing."""
        return await self._records("views/reconciler_states")

    async def scans(self, name: str | None = None) -> list[Record]:
        """Those the database knows, or one, each with who is at it now (`held_by`)."""
        return await self._records("views/scans", name=name)

    async def sweeps(self, name: str, limit: int) -> list[Record]:
        """The latest of a reconciler, newest first. `host` and `pid` are None for those who are no worker any more, or never were."""
        return await self._records("views/sweeps", name=name, limit=limit)

    async def holders(self, name: str, limit: int) -> list[Record]:
        """Who holds rows, how many of them past their lease (`expired`), and a few keys."""
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
