"""Finds the job because of which PostgreSQL refuses a claim, and claims the others without it.

One job can make the whole statement fail: a trigger on the table of jobs raises for it, or its row cannot be read. The jobs of that
lane are then claimed half by half. An event names the culprit, and this worker passes it over for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import psycopg

from trueup.clock import elapsed
from trueup.events import Events, JobFinishRefused
from trueup.store.db.connect import is_away, may_pass, unanswered
from trueup.store.jobs import Jobs
from trueup.texts import describe

T = TypeVar("T")
# Claims as many of these jobs as it can; None stands for all jobs. It returns None to end the search.
ClaimOf = Callable[[Sequence[int] | None], Awaitable[T | None]]

MAX_APART = 1_000  # jobs that are searched for culprits at a time
MAX_REFUSED = 5  # jobs that are refused alone before any part succeeds; then the jobs are not the reason
MAX_REPEATS = 3  # claims of a lane in a row that may fail with a passing error before one job is suspected
# Seconds until a job is tried again; the latter after an error that may pass.
PASSED_FOR, PASSED_BRIEFLY_FOR = 60.0, 5.0


class JobRefusals:
    """The jobs that one worker passes over, by their lanes."""

    def __init__(self, jobs: Jobs, events: Events) -> None:
        self._jobs = jobs
        self._events = events
        self._passed: dict[str, dict[int, float]] = {}  # until when
        self._repeats = Counter[str]()
        self._tries = Counter[int]()

    async def claims(self, lane: str, kinds: Sequence[str], claim: ClaimOf[T]) -> AsyncIterator[tuple[T, bool]]:
        """The results of `claim`, as a rule only one; with each, whether the lane may have jobs that were not looked at.

        Raises an error for which no job is the reason.
        """
        error: psycopg.Error | None = None
        passed = self._passed_over(lane)
        if not passed:
            try:
                claimed = await claim(None)
            except psycopg.Error as refused:
                if not self._is_of_a_job(lane, refused):
                    raise
                error = refused
            else:
                self._repeats.pop(lane, None)
                if claimed is not None:
                    yield claimed, False
                return
        due = await self._jobs.claimable(lane, kinds, MAX_APART, passed)
        if not due and error is not None:
            raise error
        culprits: dict[int, psycopg.Error] = {}
        async for claimed in half_by_half(due, claim, culprits, ends=unanswered, first=error):
            yield claimed, len(due) == MAX_APART
        for job_id, refusal in culprits.items():
            await self._pass_over(lane, job_id, due[job_id], refusal)

    def _passed_over(self, lane: str) -> list[int]:
        now = elapsed()
        left = {job_id: until for job_id, until in self._passed.pop(lane, {}).items() if until > now}
        if left:
            self._passed[lane] = left
        return list(left)

    def _is_of_a_job(self, lane: str, error: psycopg.Error) -> bool:
        """Whether one job may be the reason. Errors that may pass count only when they have not passed after MAX_REPEATS claims."""
        if unanswered(error):
            return False
        self._repeats[lane] += 1
        return not passes(error) or self._repeats[lane] > MAX_REPEATS

    async def _pass_over(self, lane: str, job_id: int, kind: str, why: psycopg.Error) -> None:
        self._tries[job_id] += 1
        said = describe(why)
        self._events.emit(JobFinishRefused(job_id, kind, "claim", self._tries[job_id], said))
        await self._jobs.refused(job_id, "claim", said)
        passed_for = PASSED_BRIEFLY_FOR if passes(why) else PASSED_FOR
        self._passed.setdefault(lane, {})[job_id] = elapsed() + passed_for


async def half_by_half(
    ids: Iterable[int],
    send: Callable[[Sequence[int]], Awaitable[T | None]],
    culprits: dict[int, psycopg.Error],
    *,
    ends: Callable[[psycopg.Error], bool],
    first: psycopg.Error | None,
) -> AsyncIterator[T]:
    """The results of a statement that PostgreSQL refuses for all of these jobs, sent for parts of them, down to single jobs.

    `culprits` gets the jobs that are refused alone. `send` returns None to end the search. Raises errors that end it (`ends`), and the
    first one when MAX_REFUSED jobs are refused alone before any part succeeds: then no job is the reason.
    """
    any_taken = False
    left = [group] if (group := list(ids)) else []
    while left:
        group = left.pop()
        try:
            taken = await send(group)
        except psycopg.Error as why:
            if ends(why):
                raise
            if len(group) > 1:
                left += [group[len(group) // 2 :], group[: len(group) // 2]]
                continue
            culprits[group[0]] = why
            if len(culprits) >= MAX_REFUSED and not any_taken:
                raise first or why from None
        else:
            if taken is None:
                return
            any_taken = True
            yield taken


def passes(error: psycopg.Error) -> bool:
    """Whether the error may pass by itself, or the server is away."""
    return is_away(error) or may_pass(error)
