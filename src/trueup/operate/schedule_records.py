"""Reads schedules: what is stored, a preview of a year, and the audit of expected ticks against the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

from trueup.durations import Duration, duration_of
from trueup.operate.audit import Audit, audit
from trueup.operate.operating import Operating
from trueup.schedules import spec as specs
from trueup.schedules.preview import Year, in_year
from trueup.schedules.spec import Spec
from trueup.store.db.own_connection import Record
from trueup.store.store import Store

Records: TypeAlias = list[Record]  # defined here because `list` is a method inside the class


class ScheduleRecords(Operating):
    def __init__(self, store: Store, keep_ticks: timedelta, declared: Sequence[str]) -> None:
        super().__init__(store)
        self._schedules = store.schedules
        self._keep_ticks = keep_ticks
        self.declared = declared

    async def list(self) -> Records:
        """All schedules by name, each with its last tick and how many of its runs have not ended."""
        return await self._store.views.schedules()

    async def show(self, name: str, ticks: int = 20) -> Record:
        """Everything about one, and its latest ticks, newest first. Raises NotFound."""
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
        return found.with_missing({name: _why_missing(state) for name, state in missing.items()})

    async def attention(self) -> Record:
        """Names of schedules on which the code of running workers and the database differ: `missing` is declared and does not
        fire, `undeclared` fires although no running worker declares it."""
        declarations = self._store.declarations
        undeclared = [each.name for each in await declarations.undeclared()]
        return {"missing": sorted(await declarations.missing()), "undeclared": undeclared}


def _why_missing(state: str | None) -> str:
    return "declared in code, and not stored" if state is None else f"declared in code, and {state}"
