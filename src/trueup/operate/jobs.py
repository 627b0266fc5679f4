"""What people do to jobs: cancel, hurry, revive, discard. The CLI and every page call these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trueup.errors import NotFound
from trueup.events import Events, JobsCancelled, JobsDiscarded, JobsRevived
from trueup.store.store import Store

PAGE = 500  # jobs per statement in commands over many

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Queued jobs that were cancelled, and running ones that were asked to stop."""

    cancelled: set[int]
    asked: set[int]


class Operations:
    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events

    async def cancel(self, ids: Sequence[int], reason: str = "cancelled by a person") -> Cancelled:
        """Cancel queued jobs; ask the holders of running ones to stop. Raises NotFound when none of them is live."""
        cancelled = await self._store.jobs.cancel(ids, reason)
        rest = [job_id for job_id in ids if job_id not in cancelled]
        asked = await self._store.jobs.request_stop(rest) if rest else set()
        # One that was running and went back to the queue in between is queued now.
        rest = [job_id for job_id in rest if job_id not in asked]
        cancelled |= await self._store.jobs.cancel(rest, reason) if rest else set()
        if not cancelled and not asked:
            raise NotFound(f"no queued or running job among {_list(ids)}")
        self._events.emit(JobsCancelled(len(cancelled), len(asked), reason))
        return Cancelled(cancelled, asked)

    async def hurry(self, ids: Sequence[int]) -> set[int]:
        """Make queued jobs that wait for their time due now. Raises NotFound when none of them waits."""
        hurried = await self._store.jobs.hurry(ids)
        if not hurried:
            raise NotFound(f"no job that waits for its time among {_list(ids)}")
        return hurried

    async def revive(self, ids: Sequence[int]) -> set[int]:
        """Put dead jobs back into their queues with all attempts anew. Raises NotFound when none could be."""
        revived = await self._store.jobs.revive(ids)
        if not revived:
            raise NotFound(
                f"no dead job that could be revived among {_list(ids)} (its unique key may be taken by a live one)"
            )
        self._events.emit(JobsRevived(len(revived)))
        return revived

    async def discard(self, ids: Sequence[int], reason: str = "discarded by a person") -> set[int]:
        """Take dead jobs off the list; they count as cancelled. Raises NotFound when none is dead."""
        discarded = await self._store.jobs.discard(ids, reason)
        if not discarded:
            raise NotFound(f"no dead job among {_list(ids)}")
        self._events.emit(JobsDiscarded(len(discarded), reason))
        return discarded

    async def revive_all(self, kind: str | None, progress: Progress | None = None) -> int:
        """Revive every dead job (of a kind), a page at a time. Returns how many."""
        return await self._paged("dead", kind, self._store.jobs.revive, progress, lambda n: JobsRevived(n))

    async def discard_all(
        self, kind: str | None, reason: str = "discarded by a person", progress: Progress | None = None
    ) -> int:
        async def discard(ids: Sequence[int]) -> set[int]:
            return await self._store.jobs.discard(ids, reason)

        return await self._paged("dead", kind, discard, progress, lambda n: JobsDiscarded(n, reason))

    async def hurry_all(self, kind: str | None, progress: Progress | None = None) -> int:
        """Make every queued job (of a kind) that waits after a failed attempt due now. Returns how many."""
        return await self._paged("queued", kind, self._store.jobs.hurry, progress, None, failed=True)

    async def _paged(
        self,
        state: str,
        kind: str | None,
        move: Callable[[Sequence[int]], object],
        progress: Progress | None,
        event: Callable[[int], object] | None,
        *,
        failed: bool = False,
    ) -> int:
        total = after = 0
        while ids := await self._store.views.ids(state=state, kind=kind, after_id=after, limit=PAGE, failed=failed):
            moved = await move(ids)  # type: ignore[misc]
            total += len(moved)
            after = ids[-1]
            if progress is not None:
                progress(len(ids))
        if event is not None and total:
            self._events.emit(event(total))  # type: ignore[arg-type]
        return total


def _list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return shown if len(ids) <= 10 else f"{shown} and {len(ids) - 10} more"
