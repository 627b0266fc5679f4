"""What people decide about rows in quarantine: look at them, release or discard them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from trueup.errors import NotFound
from trueup.events import RowsFreed
from trueup.operate.acting import Acting
from trueup.operate.given import check_limit, row_key, row_keys
from trueup.operate.operating import twin
from trueup.operate.reconciler_records import ReconcilerRecords, Records
from trueup.store.actions import Action
from trueup.store.db.own_connection import Record
from trueup.store.rows.quarantine import Quarantine

MAX_LISTED = 100_000  # rows in one answer
PAGE = 500  # rows per statement in commands over many
FREED = {"release": "released", "discard": "discarded"}  # actions, and what events call them

Move: TypeAlias = Callable[[Quarantine, str, Sequence[str]], Awaitable[set[str]]]


class QuarantineOperations(ReconcilerRecords):
    async def quarantined(self, name: str | None = None, *, limit: int = 50, discarded: bool = False) -> Records:
        """Rows in quarantine, or discarded from there, latest first, each with its last error."""
        check_limit("limit", limit, MAX_LISTED)
        if name is not None:
            await self._known(name)
        return await self._quarantine.listed(name, limit, discarded=discarded)

    async def quarantined_row(self, name: str, key: str) -> Record:
        """Everything about one quarantined or discarded row, with all its errors. Raises NotFound that tells the row's state."""
        await self._known(name)
        spellings = _spellings(row_key(key))
        found = await self._quarantine.show(name, spellings)
        record = next((found[each] for each in spellings if each in found), None)
        if record is None:
            raise NotFound(f"{name} has no row {key} in quarantine; it has no record of such a row")
        if record["state"] not in ("quarantined", "discarded"):
            raise NotFound(f"{name} has no row {key} in quarantine; that row is {record['state']}")
        return record

    async def release(self, name: str, keys: Sequence[str], *, by: str | None = None) -> set[str]:
        """Let rows be handled again, soon and with all attempts; also discarded ones. Returns the keys of those that were
        found."""
        return await self._free("release", name, keys, Quarantine.release, by)

    async def discard(self, name: str, keys: Sequence[str], *, by: str | None = None) -> set[str]:
        """Never handle these rows again while they stay in their state. Returns the keys of those that were in quarantine."""
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
        chosen = row_keys(keys)
        spellings = [spelling for key in chosen for spelling in _spellings(key)]
        moved = await self._moved(self._recorder.action(action, "row", name, by=by), name, move, spellings)
        if moved:
            self._events.emit(RowsFreed(name, len(moved), FREED[action]))
        return {key for key in chosen if moved.intersection(_spellings(key))}

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
