"""Read-only queries about reconcilers and scans, for the CLI and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trueup.store.db.repository import Repository
from trueup.store.views import Record

OUTCOMES = ("claimed", "changed", "unchanged", "conflict", "undone", "retry", "quarantined", "lost")


class ReconcilerViews(Repository):
    async def reconcilers(self, within_s: float, name: str | None = None) -> list[Record]:
        """Those the database knows, or one: its state, counts of rows, and `outcomes` of the sweeps of the last seconds."""
        columns = (
            *(
                "name",
                "place",
                "declared",
                "declared_at",
                "state",
                "note",
                "paused_until",
                "pauses",
                "paused_keys",
                "last_swept_at",
            ),
            *("last_error", "last_failed_at", "failures", "next_due_at", "held", "resting", "quarantined", "discarded"),
            "declared_by_worker",
        )
        rows = await self._fetch("views/reconcilers", name=name, within=within_s)
        split = len(columns)
        return [{**_record(columns, row[:split]), "outcomes": _record(OUTCOMES, row[split:])} for row in rows]

    async def states(self) -> list[Record]:
        """Every name the database knows, of reconcilers and scans (`kind`), and who may sweep. Counts nothing."""
        columns = ("name", "kind", "state", "note", "paused_until")
        return [_record(columns, row) for row in await self._fetch("views/reconciler_states")]

    async def scans(self, name: str | None = None) -> list[Record]:
        """Those the database knows, or one, each with who is at it now (`held_by`)."""
        columns = (
            *("name", "cursor", "underway", "started_at", "saved_at", "finished_at", "due_at", "items", "failed"),
            *("failures", "error", "held_by"),
        )
        return [_record(columns, row) for row in await self._fetch("views/scans", name=name)]

    async def sweeps(self, name: str, limit: int) -> list[Record]:
        """The latest of a reconciler, newest first. `host` and `pid` are None for those who are no worker any more, or never were."""
        columns = ("started_at", "ended_at", "holder", "host", "pid", *OUTCOMES, "late", "worst_lateness_s")
        return [_record(columns, row) for row in await self._fetch("views/sweeps", name=name, limit=limit)]

    async def holders(self, name: str, limit: int) -> list[Record]:
        """Who holds rows, how many of them past their lease (`expired`), and a few keys."""
        columns = ("holder", "host", "pid", "rows", "expired", "claimed_at", "lease_until", "keys")
        return [_record(columns, row) for row in await self._fetch("views/holders", name=name, limit=limit)]

    async def errors(self, name: str, limit: int) -> list[Record]:
        """Rows whose last attempt failed, latest first; `again_at` of those that are tried again."""
        columns = ("key", "state", "attempt", "changed_at", "again_at", "reason", "error")
        return [_record(columns, row) for row in await self._fetch("views/row_errors", name=name, limit=limit)]

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
        (row,) = await self._fetch("views/sweeping")
        return _record(("active", "paused", "resting", "quarantined", "swept_ago_s", "failing", "undeclared"), row)


def _record(columns: Sequence[str], row: Sequence[Any]) -> Record:
    return dict(zip(columns, row, strict=True))
