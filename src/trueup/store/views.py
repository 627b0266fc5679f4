"""Read-only queries, shared by the CLI and everything else that shows results to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trueup.jobs.records import JobFilter
from trueup.store.db.own_connection import Record
from trueup.store.db.repository import Repository

MAX_ID = 2**63 - 1


def matching(chosen: JobFilter) -> dict[str, Any]:
    """The parameters of `{matching}`, and the states."""
    return {**{each: getattr(chosen, each) for each in chosen.__slots__}, "states": list(chosen.states)}


class Views(Repository):
    async def queues(self) -> list[Record]:
        """Per queue and kind: queued, due, running, oldest due age in seconds."""
        return await self._records("views/queues")

    async def ended(self, within_s: float) -> list[Record]:
        """Per kind and final state: how many jobs ended within the last seconds."""
        return await self._records("views/ended", within=within_s)

    async def workers(self) -> list[Record]:
        return await self._records("views/workers")

    async def fleet(self) -> list[Record]:
        """All registered workers, living ones first, each with what its code declares."""
        return await self._records("views/fleet")

    async def leases(self, limit: int = 200) -> list[Record]:
        """Named leases, held ones first."""
        return await self._records("views/leases", limit=limit)

    async def jobs(self, chosen: JobFilter, *, limit: int = 50, before: int = MAX_ID, down_to: int = 0) -> list[Record]:
        """Matching jobs, newest first."""
        return await self._records("views/jobs", **matching(chosen), limit=limit, before=before, down_to=down_to)

    async def window(self, states: Sequence[str], most: int, before: int = MAX_ID) -> int:
        """The id down to which at most `most` jobs of each table are in these states; 0 when that is all of them."""
        ((at,),) = await self._fetch("views/window", states=list(states), before=before, window=most)
        return at or 0

    async def job(self, job_id: int) -> Record | None:
        """Everything about one job."""
        records = await self._records("views/job", id=job_id)
        return records[0] if records else None

    async def schedules(self) -> list[Record]:
        """All schedules by name, each with its last tick."""
        return await self._records("schedules/list")

    async def schedule(self, name: str) -> Record | None:
        """Everything about one schedule."""
        records = await self._records("schedules/get", name=name)
        return records[0] if records else None

    async def ticks(self, name: str, limit: int) -> list[Record]:
        """The latest ticks of a schedule, newest first."""
        return await self._records("schedules/ticks", name=name, limit=limit)

    async def planning(self) -> Record:
        """How many schedules are active and paused, and in how many seconds the next tick is due; negative when it is late."""
        (record,) = await self._records("views/planning")
        return record

    async def unserved(self) -> list[Record]:
        """Kinds with jobs that are due in a queue where no living worker runs them; `waiting` counts the first of each lane."""
        rows = await self._fetch_steered("views/unserved")
        return [dict(zip(("kind", "queue", "waiting", "oldest_s"), row, strict=True)) for row in rows]

    async def ids(self, chosen: JobFilter, *, after_id: int, limit: int) -> list[int]:
        """Ids of jobs that match, oldest first, a page at a time: for commands over many jobs."""
        found = await self._fetch("views/ids", **matching(chosen), after_id=after_id, limit=limit)
        return [job_id for (job_id,) in found]

    async def count(self, chosen: JobFilter, *, most: int = MAX_ID, down_to: int = 0) -> int:
        """How many jobs match; counting ends beyond `most`."""
        ((count,),) = await self._fetch("views/count", **matching(chosen), most=most, down_to=down_to)
        return int(count)
