"""The moves of a job, as statements. Each returns what happened: the ids that came back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg

from trueup.jobs.exhausted import TRIES, Exhausting
from trueup.jobs.failure import MAX_ERRORS, Failure
from trueup.jobs.job import ClaimedJob
from trueup.store.db.message import Fetched, array, numbers
from trueup.store.db.repository import Repository

MAX_CLAIM_BYTES = 64 * 1024 * 1024  # of arguments in one claim
BY_RANK = attrgetter("rank", "id")


class ClaimedJobs(list[ClaimedJob]):
    """Claimed jobs, best rank first; `more`: there may be more of them."""

    def __init__(self, jobs: Iterable[ClaimedJob] = (), *, more: bool = False) -> None:
        super().__init__(jobs)
        self.more = more


@dataclass(frozen=True, slots=True)
class Rescued:
    """A job taken from a worker whose lease expired; `state` is its new state. Without a host, the worker had left in order."""

    job_id: int
    kind: str
    attempt: int
    holder: UUID
    host: str
    pid: int
    state: str
    exhausting: bool = False  # queued only for its `exhausted=`


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The state of a job: live (result and error empty), or how it ended."""

    state: str
    term: int
    holder: UUID | None
    result: Any
    reason: str | None
    error: dict[str, Any] | None
    kind: str


class Jobs(Repository):
    async def reach(self) -> None:
        """Raises when the server does not answer."""
        await self._database.fetch(b"select 1")

    async def claim(
        self,
        holder: UUID,
        lane: str,
        most: int,
        kinds: Sequence[str],
        max_bytes: int = MAX_CLAIM_BYTES,
        only: Sequence[int] | None = None,
    ) -> ClaimedJobs:
        """queued -> running, up to `most`, best rank first; `only` of these, if any are named. Empty also when the lease is gone.

        Ends after the job whose arguments exceed `max_bytes` together with those before it, so one is always claimed.
        """
        rows = await self._fetch_steered(
            "jobs/claim",
            holder=holder,
            lane=lane,
            most=most,
            kinds=array(kinds),
            bytes=max_bytes,
            only=None if only is None else numbers(only),
        )
        found = rows[0][-1] if rows else 0
        jobs = sorted((ClaimedJob(holder, *row[:-1]) for row in rows), key=BY_RANK)
        return ClaimedJobs(jobs, more=bool(rows) and (found >= most or len(rows) < found))

    async def held_terms(self, holder: UUID) -> list[tuple[int, int]]:
        """(id, term) of what this holder has claimed and not finished, as the database knows it."""
        return [(job_id, term) for job_id, term in await self._fetch("jobs/held_terms", holder=holder)]

    async def held(self, holder: UUID, ids: Sequence[int]) -> list[ClaimedJob]:
        """Those of these jobs that this holder has."""
        return [ClaimedJob(holder, *row) for row in await self._fetch("jobs/held", holder=holder, ids=list(ids))]

    async def complete(self, holder: UUID, jobs: Sequence[ClaimedJob], results: Sequence[str | None]) -> set[int]:
        """running -> done. The ids that come back are done; the others were lost."""
        # Most jobs return nothing: a null array is padded with nulls, and need not be sent.
        return await self._finish("jobs/complete", holder, jobs, results=list(results) if any(results) else None)

    async def retry(
        self, holder: UUID, jobs: Sequence[ClaimedJob], delays: Sequence[timedelta], failures: Sequence[Failure]
    ) -> set[int]:
        """running -> queued after a failed attempt."""
        return await self._finish(
            "jobs/retry",
            holder,
            jobs,
            delays=[delay.total_seconds() for delay in delays],
            errors=[failure.to_json(job) for failure, job in zip(failures, jobs, strict=True)],
            most_errors=MAX_ERRORS,
        )

    async def snooze(self, holder: UUID, jobs: Sequence[ClaimedJob], delays: Sequence[timedelta]) -> set[int]:
        """running -> queued for later; the attempt is given back."""
        delays_s = [delay.total_seconds() for delay in delays]
        return await self._finish("jobs/snooze", holder, jobs, delays=delays_s)

    async def release(
        self, holder: UUID, jobs: Sequence[ClaimedJob], lanes: Sequence[str], keys: Sequence[str]
    ) -> set[int]:
        """running -> queued at once; the attempt is given back."""
        return await self._finish("jobs/release", holder, jobs, lanes=list(lanes), keys=list(keys))

    async def bury(
        self,
        holder: UUID,
        jobs: Sequence[ClaimedJob],
        reasons: Sequence[str],
        failures: Sequence[Failure | Sequence[Failure]],
    ) -> set[int]:
        """running -> dead."""
        errors = [
            each.to_json(job) if isinstance(each, Failure) else errors_json(each, job)
            for each, job in zip(failures, jobs, strict=True)
        ]
        return await self._finish(
            "jobs/bury", holder, jobs, reasons=list(reasons), errors=errors, most_errors=MAX_ERRORS
        )

    async def defer(
        self,
        holder: UUID,
        jobs: Sequence[ClaimedJob],
        delays: Sequence[timedelta],
        exhausting: Sequence[Exhausting],
        failures: Sequence[Sequence[Failure]],
    ) -> set[int]:
        """running -> queued, with only `exhausted=` left to be called; the attempt is given back."""
        return await self._finish(
            "jobs/defer",
            holder,
            jobs,
            delays=[delay.total_seconds() for delay in delays],
            exhausting=[each.to_json() for each in exhausting],
            errors=[errors_json(each, job) for each, job in zip(failures, jobs, strict=True)],
            most_errors=MAX_ERRORS,
        )

    async def drop(
        self,
        holder: UUID,
        jobs: Sequence[ClaimedJob],
        reasons: Sequence[str],
        ticks_skipped: Sequence[str | None] = (),
    ) -> set[int]:
        """running -> cancelled; where `ticks_skipped` gives a reason, the tick of that run counts as skipped."""
        if any(ticks_skipped):
            skipped = list(ticks_skipped)
            return await self._finish("jobs/drop_run", holder, jobs, reasons=list(reasons), ticks_skipped=skipped)
        return await self._finish("jobs/drop", holder, jobs, reasons=list(reasons))

    async def ended_as_mine(self, holder: UUID, jobs: Sequence[ClaimedJob]) -> dict[int, str]:
        """After a lost reply: which of these claims this holder has finished, and the state of each."""
        rows = await self._fetch(
            "jobs/ended_as_mine",
            holder=holder,
            ids=[job.id for job in jobs],
            terms=[job.term for job in jobs],
            crashes=[job.crashes for job in jobs],
        )
        return dict(rows)

    async def rescue(self, exhausts: Iterable[str] = (), only: Sequence[int] | None = None) -> list[Rescued]:
        """Take the jobs of every worker whose lease has expired. `exhausts`: kinds with `exhausted=`, in addition to declared ones."""
        rows = await self._fetch(
            "jobs/rescue",
            most_errors=MAX_ERRORS,
            max_tries=TRIES.max_attempts,
            exhausts=list(exhausts),
            only=None if only is None else list(only),
        )
        return [Rescued(*row) for row in rows]

    async def claimable(self, lane: str, kinds: Sequence[str], most: int, refused: Sequence[int]) -> dict[int, str]:
        """What a claim from this lane might take, without those that were refused: kinds by the jobs' ids."""
        params = {"lane": lane, "kinds": list(kinds), "most": most, "refused": list(refused)}
        return dict(await self._fetch("jobs/claimable", **params))

    async def rescuable(self, most: int) -> dict[int, str]:
        """What `rescue` would take: kinds by the jobs' ids."""
        return dict(await self._fetch("jobs/rescuable", most=most))

    async def refused(self, job_id: int, move: str, error: str) -> None:
        """Note what PostgreSQL refuses about a job, for people. It decides nothing, so a refusal of the note is passed over."""
        with suppress(psycopg.Error):
            await self._fetch("jobs/refuse", id=job_id, move=move, error=error)

    async def stopping(self, holder: UUID) -> set[tuple[int, int]]:
        """(id, term) of this holder's jobs with a pending cancellation."""
        return {(job_id, term) for job_id, term in await self._fetch("jobs/stopping", holder=holder)}

    async def progress(self, job: ClaimedJob, percent: float, note: str | None) -> bool:
        rows = await self._fetch(
            "jobs/progress", id=job.id, term=job.term, holder=job.holder, percent=percent, note=note
        )
        return bool(rows)

    async def cancel(self, ids: Sequence[int], reason: str) -> set[int]:
        """queued -> cancelled."""
        return _ids(await self._fetch("jobs/cancel", ids=list(ids), reason=reason))

    async def request_stop(self, ids: Sequence[int]) -> set[int]:
        """Request the cancellation of running jobs."""
        return _ids(await self._fetch("jobs/request_stop", ids=list(ids)))

    async def revive(self, ids: Sequence[int]) -> set[int]:
        """dead -> queued, with all attempts available again."""
        return _ids(await self._fetch("jobs/revive", ids=list(ids)))

    async def discard(self, ids: Sequence[int], reason: str) -> set[int]:
        """dead -> cancelled."""
        return _ids(await self._fetch("jobs/discard", ids=list(ids), reason=reason))

    async def hurry(self, ids: Sequence[int]) -> set[int]:
        """Make queued jobs due now."""
        return _ids(await self._fetch("jobs/hurry", ids=list(ids)))

    async def adopt(self, lanes: Sequence[str]) -> set[int]:
        """Put queued jobs of lanes that no living worker serves back into their queue's lane, a batch at a time."""
        return _ids(await self._fetch_steered("jobs/adopt", lanes=list(lanes)))

    async def outcome(self, job_id: int) -> JobEnd | None:
        rows = await self._fetch("jobs/outcome", id=job_id)
        return JobEnd(*rows[0]) if rows else None

    async def _finish(self, statement: str, holder: UUID, jobs: Sequence[ClaimedJob], **params: Any) -> set[int]:
        ids, terms = numbers(job.id for job in jobs), numbers(job.term for job in jobs)
        return _ids(await self._fetch(statement, holder=holder, ids=ids, terms=terms, **params))


def errors_json(failures: Sequence[Failure], job: ClaimedJob) -> str:
    return f"[{','.join(failure.to_json(job) for failure in failures)}]"


def _ids(rows: Fetched) -> set[int]:
    return {row[0] for row in rows}
