"""Actions on many jobs, and backfills, that run in the background of the dashboard's process, with progress that pages show.

Each begins after a pause, in which it can be stopped before it changes anything. It calls the functions behind the command line a
page at a time, so it can be stopped between two pages. It does not survive the process: jobs that it had not reached are
unchanged, and repeating the action continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from trueup.durations import Rate
from trueup.errors import NotFound, TrueupError
from trueup.operate.acting import acting
from trueup.operate.jobs import conditions, job_filter
from trueup.texts import describe
from trueup.web.dashboard.source import Source

UNDO_FOR = 5.0  # seconds until it begins
PAGE = 200  # jobs at a time
KEPT = 20  # finished runs that are remembered
MAX_RUNNING = 8

STATES = {
    "retry": ("queued",),
    "cancel": ("queued", "running"),
    "revive": ("dead",),
    "discard": ("dead",),
}
"""The states that each action is for."""

Act = Callable[[Sequence[int]], Awaitable[object]]


@dataclass(slots=True)
class BulkRun:
    id: int
    source: str
    about: tuple[str, ...]  # the page that shows it: ("jobs",) or ("schedules", name)
    action: str
    by: str
    what: str
    started_at: datetime
    total: int | None = None  # if known in advance
    seen: int = 0
    done: int = 0
    state: str = "waiting"  # waiting, running, done, undone, stopped, failed
    error: str | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def underway(self) -> bool:
        return self.state in ("waiting", "running")


Work = Callable[[BulkRun], Awaitable[None]]
"""Does what a run is for and counts in it. It is cancelled when the run is stopped."""


class Bulk:
    def __init__(self, undo_for: float = UNDO_FOR) -> None:
        self.undo_for = undo_for
        self._ids = count(1)
        self._runs: dict[int, BulkRun] = {}

    def of(self, source: str, about: tuple[str, ...] | None = None) -> list[BulkRun]:
        """Active runs and the latest ended ones, newest first."""
        return [
            run
            for run in reversed(self._runs.values())
            if run.source == source and (about is None or run.about == about)
        ]

    def start(
        self,
        source: Source,
        work: Work,
        action: str,
        by: str,
        what: str,
        *,
        about: tuple[str, ...] = ("jobs",),
        total: int | None = None,
    ) -> BulkRun:
        """Raises TrueupError when too many are active."""
        if sum(run.underway for run in self._runs.values()) >= MAX_RUNNING:
            raise TrueupError(f"{MAX_RUNNING} actions are under way; wait until one of them has ended, or stop it")
        run = BulkRun(next(self._ids), source.name, about, action, by, what, datetime.now(UTC), total)
        self._runs[run.id] = run
        for old in [each.id for each in self._runs.values() if not each.underway][: -KEPT or None]:
            del self._runs[old]
        run.task = asyncio.get_running_loop().create_task(self._run(run, source, work))
        return run

    def stop(self, source: str, written: str) -> BulkRun | None:
        """Stop the run with this id if it is active; what it has done stays done. None when it has ended or does not exist.

        A run that has not begun is undone: it has changed nothing.
        """
        known = written.isascii() and written.isdigit() and len(written) < 10
        run = self._runs.get(int(written)) if known else None
        if run is None or run.source != source or not run.underway or run.task is None:
            return None
        run.state = "undone" if run.state == "waiting" else "stopped"
        run.task.cancel()
        return run

    async def close(self) -> None:
        for run in self._runs.values():
            if run.task is not None and not run.task.done():
                run.task.cancel()
                with suppress(asyncio.CancelledError):
                    await run.task

    async def _run(self, run: BulkRun, source: Source, work: Work) -> None:
        try:
            await asyncio.sleep(self.undo_for)
            run.state = "running"
            await work(run)
            run.state = "done"
        except asyncio.CancelledError:
            if run.underway:
                run.state = "stopped"
            raise
        except Exception as error:
            run.state, run.error = "failed", describe(error)
        finally:
            source.forget()


async def counted(source: Source, wanted: dict[str, Any]) -> int | None:
    """How many jobs match; None when there are too many to count."""
    found = await source.app.jobs.count(**wanted)
    return None if found.more else found.number


def matching(source: Source, name: str, wanted: dict[str, Any]) -> Work:
    """The action on every matching job. Raises NotFound for an unknown action."""
    act = action(source, name)
    others: Any = {key: value for key, value in wanted.items() if key not in ("state", "kind")}
    detail = conditions(job_filter(wanted["state"], wanted["kind"], others))

    async def work(run: BulkRun) -> None:
        # One row in the record, however many pages it takes.
        with acting(run.by, "web", together=True, detail=detail):
            after: int | None = None
            while True:
                page = await source.app.jobs.list(**wanted, limit=PAGE, after=after)
                if page.jobs:
                    run.done += await moved(act, [job.id for job in page])
                    run.seen += len(page)
                if page.next is None:
                    return
                after = page.next

    return work


def backfill(source: Source, name: str, start: datetime, end: datetime, rate: Rate) -> Work:
    """The ticks of a range that were not fired."""

    async def work(run: BulkRun) -> None:
        def looked_at(ticks: int) -> None:
            run.seen += ticks

        with acting(run.by, "web"):
            run.done = await source.app.schedules.backfill(name, start, end, rate=rate, progress=looked_at)

    return work


def action(source: Source, name: str) -> Act:
    """The function for the action of that name. Raises NotFound."""
    jobs = source.app.jobs
    acts: dict[str, Act] = {
        "retry": jobs.hurry,
        "cancel": jobs.cancel,
        "revive": jobs.revive,
        "discard": jobs.discard,
    }
    if name not in acts:
        raise NotFound(f"there is no action {name!r} on jobs")
    return acts[name]


async def moved(act: Act, ids: Sequence[int]) -> int:
    """The number of jobs that were changed; zero when none was in the right state any more."""
    try:
        result: Any = await act(ids)
    except NotFound:
        return 0
    return len(result.cancelled) + len(result.asked) if hasattr(result, "asked") else len(result)
