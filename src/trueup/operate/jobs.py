"""Reading jobs, and what people do to them: cancel, retry, revive, discard. The CLI, every page and users call these.

Each coroutine method has a twin for code without an event loop: `get` and `get_sync`, `list` and `list_sync`, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from trueup.durations import Duration, duration_of
from trueup.errors import ConfigError, NotFound
from trueup.events import Events, JobsCancelled, JobsDiscarded, JobsRevived
from trueup.jobs.names import checked_name
from trueup.jobs.payload import encode_result
from trueup.jobs.records import JobCount, JobDetails, JobFilter, JobPage, JobSummary, Pause, QueueDepth
from trueup.jobs.states import FINAL, LIVE, JobState
from trueup.operate.acting import Acting, Recorder
from trueup.operate.given import (
    MAX_ATTEMPTS,
    MAX_LIST,
    arguments_condition,
    check_limit,
    listed,
    number_of,
    numbers_of,
    text_condition,
)
from trueup.operate.operating import Operating, twin
from trueup.options import check_known
from trueup.store.actions import Action
from trueup.store.jobs import Jobs
from trueup.store.pauses import What
from trueup.store.store import Store
from trueup.store.views import MAX_ID
from trueup.texts import MAX_MESSAGE, clean

PAGE = 500  # jobs per statement in commands over many
MAX_COUNT = 10_000  # exact up to here
MAX_ARGUMENTS = 1 << 20  # bytes of JSON to search for
READ_AHEAD = 20_000  # jobs read for one page or count with conditions that no index serves

Progress = Callable[[int], None]


class Matching(TypedDict, total=False):
    """Further conditions on jobs; all that are given must hold."""

    queue: str | None
    schedule: str | None  # runs of this schedule
    min_attempts: int
    arguments: Mapping[str, Any] | None  # names and values that the arguments contain: {"tenant": "acme"}
    error_contains: str | None  # in the type or message of the last error; upper and lower case are the same
    older_than: Duration | None  # since it was enqueued


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Queued jobs that were cancelled, and running ones that were asked to stop."""

    cancelled: set[int]
    asked: set[int]


@dataclass(frozen=True, slots=True)
class Retried:
    """Dead jobs that were revived, and waiting ones that are due now."""

    revived: set[int]
    hurried: set[int]


M = TypeVar("M", set[int], Cancelled, Retried)


class Operations(Operating):
    def __init__(self, store: Store, events: Events) -> None:
        super().__init__(store)
        self._events = events
        self._jobs = store.jobs
        self._views = store.views
        self._pauses = store.pauses
        self._recorder = Recorder(store)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def get(self, job_id: int) -> JobDetails | None:
        """Everything about a job, live or ended. None when it is unknown, or its history has passed its retention."""
        record = await self._views.job(number_of(job_id))
        return None if record is None else JobDetails.of(record)

    async def list(
        self,
        *,
        state: str | Sequence[str] | None = None,
        kind: str | None = None,
        limit: int = 50,
        after: int | None = None,
        **matching: Unpack[Matching],
    ) -> JobPage:
        """A page of jobs, newest first. `after` is the `next` of the page before it.

        One call reads a bounded number of jobs, however many there are; see JobPage.
        """
        check_limit("limit", limit, MAX_LIST)
        chosen = job_filter(state, kind, matching)
        before = MAX_ID if after is None else number_of(after)
        down_to = await self._views.window(chosen.states, READ_AHEAD, before) if chosen.selective else 0
        records = await self._views.jobs(chosen, limit=limit + 1, before=before, down_to=down_to)
        jobs = tuple(map(JobSummary.of, records[:limit]))
        if len(records) > limit:
            return JobPage(jobs, jobs[-1].id)
        return JobPage(jobs, down_to or None)

    async def count(
        self,
        *,
        state: str | Sequence[str] | None = None,
        kind: str | None = None,
        **matching: Unpack[Matching],
    ) -> JobCount:
        """How many jobs match: exact up to 10,000, a lower bound beyond that."""
        chosen = job_filter(state, kind, matching)
        down_to = await self._views.window(chosen.states, READ_AHEAD) if chosen.selective else 0
        found = await self._views.count(chosen, most=MAX_COUNT + 1, down_to=down_to)
        return JobCount(min(found, MAX_COUNT), more=found > MAX_COUNT or down_to > 0)

    async def queues(self) -> tuple[QueueDepth, ...]:
        """The live jobs per queue and kind: how many, how many are due, and how long the oldest of those has waited."""
        return tuple(QueueDepth(**record) for record in await self._views.queues())

    # -- acting: each is recorded, see `app.actions` --------------------------------------------------------------------

    async def cancel(
        self, ids: Sequence[int], reason: str = "cancelled by a person", *, by: str | None = None
    ) -> Cancelled:
        """Cancel queued jobs; ask the holders of running ones to stop. Raises NotFound when none of them is live."""
        did = await self._moved(
            "cancel", ids, by, reason, lambda jobs, ids: _cancel(jobs, ids, reason), "no queued or running job among {}"
        )
        self._events.emit(JobsCancelled(len(did.cancelled), len(did.asked), reason))
        return did

    async def retry(self, ids: Sequence[int], *, by: str | None = None) -> Retried:
        """Run jobs again now: `revive` those that are dead, `hurry` those that wait. Raises NotFound when none is either."""
        did = await self._moved("retry", ids, by, None, _retry, "no job that is dead or waits for its time among {}")
        if did.revived:
            self._events.emit(JobsRevived(len(did.revived)))
        return did

    async def hurry(self, ids: Sequence[int], *, by: str | None = None) -> set[int]:
        """Make queued jobs that wait for their time due now. Raises NotFound when none of them waits."""
        return await self._moved("hurry", ids, by, None, Jobs.hurry, "no job that waits for its time among {}")

    async def revive(self, ids: Sequence[int], *, by: str | None = None) -> set[int]:
        """Put dead jobs back into their queues with all attempts available again. Raises NotFound when none could be."""
        none = "no dead job that could be revived among {} (its unique key may be taken by a live one)"
        revived = await self._moved("revive", ids, by, None, Jobs.revive, none)
        self._events.emit(JobsRevived(len(revived)))
        return revived

    async def discard(
        self, ids: Sequence[int], reason: str = "discarded by a person", *, by: str | None = None
    ) -> set[int]:
        """Remove dead jobs from the list; they count as cancelled. Raises NotFound when none is dead."""
        discarded = await self._moved(
            "discard", ids, by, reason, lambda jobs, ids: jobs.discard(ids, reason), "no dead job among {}"
        )
        self._events.emit(JobsDiscarded(len(discarded), reason))
        return discarded

    # -- pausing ------------------------------------------------------------------------------------------------------

    async def pause(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> bool:
        """Have no worker claim jobs of this queue, or of this kind, until `resume`. False when it is paused already.

        Claims that begin after this returns respect it. What is running, or was claimed just before, goes on.
        """
        what, name = _paused_thing(queue, kind)
        why = None if reason is None else clean(reason, MAX_MESSAGE)
        action = self._recorder.action("pause", what, name, by=by, detail=why)

        async def pause(acting: Acting) -> bool:
            paused = await self._pauses.on(acting.database).pause(what, name, action.actor, why)
            await acting.note(int(paused))
            return paused

        return await self._recorder.carry_out(action, pause)

    async def resume(self, *, queue: str | None = None, kind: str | None = None, by: str | None = None) -> bool:
        """End a pause; workers are notified at once. False when it is not paused."""
        what, name = _paused_thing(queue, kind)

        async def resume(acting: Acting) -> bool:
            resumed = await self._pauses.on(acting.database).resume(what, name)
            await acting.note(int(resumed))
            return resumed

        return await self._recorder.carry_out(self._recorder.action("resume", what, name, by=by), resume)

    async def paused(self) -> tuple[Pause, ...]:
        """The queues and kinds that are paused, the oldest pause first."""
        return await self._pauses.list()

    # -- acting on all that match -------------------------------------------------------------------------------------

    async def cancel_all(
        self,
        kind: str | None = None,
        reason: str = "cancelled by a person",
        progress: Progress | None = None,
        by: str | None = None,
        **matching: Unpack[Matching],
    ) -> int:
        """Cancel every queued job that matches and ask the running ones to stop, a page at a time. Returns how many."""
        pages: list[Cancelled] = []
        chosen = job_filter(sorted(LIVE), kind, matching)
        total = await self._paged(
            chosen, "cancel", by, lambda jobs, ids: _cancel(jobs, ids, reason), progress, pages.append
        )
        if total:
            cancelled, asked = (sum(len(getattr(page, name)) for page in pages) for name in ("cancelled", "asked"))
            self._events.emit(JobsCancelled(cancelled, asked, reason))
        return total

    async def revive_all(
        self,
        kind: str | None = None,
        progress: Progress | None = None,
        by: str | None = None,
        **matching: Unpack[Matching],
    ) -> int:
        """Revive every dead job that matches, a page at a time. Returns how many."""
        total = await self._paged(job_filter("dead", kind, matching), "revive", by, Jobs.revive, progress)
        if total:
            self._events.emit(JobsRevived(total))
        return total

    async def discard_all(
        self,
        kind: str | None = None,
        reason: str = "discarded by a person",
        progress: Progress | None = None,
        by: str | None = None,
        **matching: Unpack[Matching],
    ) -> int:
        """Discard every dead job that matches, a page at a time. Returns how many."""

        async def discard(jobs: Jobs, ids: Sequence[int]) -> set[int]:
            return await jobs.discard(ids, reason)

        total = await self._paged(job_filter("dead", kind, matching), "discard", by, discard, progress)
        if total:
            self._events.emit(JobsDiscarded(total, reason))
        return total

    async def hurry_all(
        self,
        kind: str | None = None,
        progress: Progress | None = None,
        by: str | None = None,
        **matching: Unpack[Matching],
    ) -> int:
        """Make every queued job that matches and waits after a failed attempt due now. Returns how many."""
        chosen = job_filter("queued", kind, {"min_attempts": 1, **matching})
        return await self._paged(chosen, "hurry", by, Jobs.hurry, progress)

    async def _paged(
        self,
        chosen: JobFilter,
        what: str,
        by: str | None,
        move: Callable[[Jobs, Sequence[int]], Awaitable[M]],
        progress: Progress | None,
        moved: Callable[[M], object] = lambda page: None,
    ) -> int:
        """Each page is a transaction of its own, and the record counts what is done so far."""
        action = self._recorder.action(what, "job", by=by, detail=conditions(chosen))
        total = after = 0
        while ids := await self._views.ids(chosen, after_id=after, limit=PAGE):
            page = await self._move(action, partial(_on, move, ids))
            moved(page)
            total, after = total + len(_ids(page)), ids[-1]
            if progress is not None:
                progress(len(ids))
        return total

    async def _moved(
        self,
        what: str,
        ids: Sequence[int],
        by: str | None,
        detail: str | None,
        move: Callable[[Jobs, Sequence[int]], Awaitable[M]],
        none: str,
    ) -> M:
        """Raises ConfigError for what are no ids, and NotFound with the text `none` when none of them was moved."""
        chosen = numbers_of(ids)
        moved = await self._move(self._recorder.action(what, "job", by=by, detail=detail), partial(_on, move, chosen))
        if not _ids(moved):
            raise NotFound(none.format(_list(chosen)))
        return moved

    async def _move(self, action: Action, move: Callable[[Jobs], Awaitable[M]]) -> M:
        """The move and its record, in one transaction."""

        async def work(acting: Acting) -> M:
            moved = await move(self._jobs.on(acting.database))
            await acting.note(len(_ids(moved)), _ids(moved))
            return moved

        return await self._recorder.carry_out(action, work)

    get_sync = twin(get)
    pause_sync = twin(pause)
    resume_sync = twin(resume)
    paused_sync = twin(paused)
    list_sync = twin(list)
    count_sync = twin(count)
    queues_sync = twin(queues)
    cancel_sync = twin(cancel)
    retry_sync = twin(retry)
    hurry_sync = twin(hurry)
    revive_sync = twin(revive)
    discard_sync = twin(discard)
    cancel_all_sync = twin(cancel_all)
    revive_all_sync = twin(revive_all)
    discard_all_sync = twin(discard_all)
    hurry_all_sync = twin(hurry_all)


def job_filter(state: str | Sequence[str] | None, kind: str | None, matching: Matching) -> JobFilter:
    """The conditions as a value. Raises ConfigError or InvalidArguments naming one that cannot be."""
    such_as = "['queued', 'dead']"
    wanted = JobState if state is None else state
    states: list[object] = [wanted] if isinstance(wanted, str) else listed("state", wanted, such_as)
    if not states:  # taken as no condition, it would select every job
        raise ConfigError(f"state={state!r}: give a list, such as {such_as}, or omit it")
    if unknown := [each for each in states if each not in LIVE | FINAL]:
        raise ConfigError(f"state {unknown[0]!r}: there are {', '.join(JobState)}")
    check_known("the selection of jobs", matching, (*Matching.__annotations__, "state", "kind"))
    least_attempts = matching.get("min_attempts", 0)
    check_limit("min_attempts", least_attempts, MAX_ATTEMPTS, least=0)
    arguments, older_than = arguments_condition(matching.get("arguments")), matching.get("older_than")
    return JobFilter(
        tuple(str(each) for each in states),
        text_condition("kind", kind),
        text_condition("queue", matching.get("queue")),
        text_condition("schedule", matching.get("schedule")),
        least_attempts,
        None if arguments is None else encode_result(dict(arguments), MAX_ARGUMENTS, "arguments"),
        text_condition("error_contains", matching.get("error_contains")),
        None if older_than is None else duration_of("older_than", older_than).total_seconds(),
    )


async def _cancel(jobs: Jobs, ids: Sequence[int], reason: str) -> Cancelled:
    cancelled = await jobs.cancel(ids, reason)
    rest = [job_id for job_id in ids if job_id not in cancelled]
    asked = await jobs.request_stop(rest) if rest else set()
    # One that was running and went back to the queue in between is queued now.
    rest = [job_id for job_id in rest if job_id not in asked]
    cancelled |= await jobs.cancel(rest, reason) if rest else set()
    return Cancelled(cancelled, asked)


async def _on(move: Callable[[Jobs, Sequence[int]], Awaitable[M]], ids: Sequence[int], jobs: Jobs) -> M:
    return await move(jobs, ids)


async def _retry(jobs: Jobs, ids: Sequence[int]) -> Retried:
    revived = await jobs.revive(ids)
    rest = [job_id for job_id in ids if job_id not in revived]
    return Retried(revived, await jobs.hurry(rest) if rest else set())


def _ids(moved: set[int] | Cancelled | Retried) -> set[int]:
    match moved:
        case Cancelled(cancelled, asked):
            return cancelled | asked
        case Retried(revived, hurried):
            return revived | hurried
        case _:
            return moved


def conditions(chosen: JobFilter) -> str:
    """The conditions as text for the action's record: the names of arguments, without their values."""
    given = {
        "kind": chosen.kind,
        "queue": chosen.queue,
        "schedule": chosen.schedule,
        "min_attempts": chosen.min_attempts or None,
        "arguments": None if chosen.arguments is None else ",".join(sorted(json.loads(chosen.arguments))),
        "error_contains": chosen.error_contains,
        "older_than": None if chosen.older_than_s is None else f"{chosen.older_than_s:g}s",
    }
    conditions = " ".join(f"{name}={value}" for name, value in given.items() if value is not None)
    return f"all that match {conditions}" if conditions else "all"


def _paused_thing(queue: str | None, kind: str | None) -> tuple[What, str]:
    if (queue is None) == (kind is None):
        raise ConfigError("give a queue or a kind to pause or resume: queue=… or kind=…")
    return (
        ("kind", checked_name("job name", kind)) if kind is not None else ("queue", checked_name("queue", queue or ""))
    )


def _list(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:10])) or "no ids"
    return shown if len(ids) <= 10 else f"{shown} and {len(ids) - 10} more"
