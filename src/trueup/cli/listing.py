"""A list of jobs: newest first, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from trueup.cli import output
from trueup.cli.ages import ago
from trueup.cli.options import option
from trueup.cli.output import TextTable, headings
from trueup.cli.session import Session
from trueup.jobs.records import JobError
from trueup.texts import known_names

if TYPE_CHECKING:
    from trueup.app import App
    from trueup.jobs.records import JobPage, JobProgress, JobSummary
    from trueup.operate.jobs import Matching

Limit = Annotated[int, option("--limit -n", "N", "Maximum number of entries.", min=1, max=10_000)]

COLUMNS = headings("id>", "kind*", "queue*", "state", "attempt>", "due or ended", "last error, progress*")


def list_jobs(
    session: Session,
    *,
    state: str | Sequence[str],
    kind: str | None,
    limit: int,
    after: int | None = None,
    **matching: Unpack[Matching],
) -> None:

    async def look(app: App) -> tuple[JobPage, list[str]]:
        page = await app.jobs.list(state=state, kind=kind, limit=limit, after=after, **matching)
        return page, [] if page else await unknown(app, kind=kind, queue=matching.get("queue"))

    page, doubts = session.run(look)
    note_unknown(doubts)
    if session.json:
        output.write_json([asdict(job) for job in page])
        return
    table = TextTable("Jobs", COLUMNS, [_row(job) for job in page], empty="no jobs")
    output.show(table)
    if page.next is not None:
        output.note(
            f"there are more; the newest {len(page)} are shown (--limit, or --after {page.next} for older ones)"
        )


def _row(job: JobSummary) -> tuple[object, ...]:
    attempts = f"{job.attempt}/{job.max_attempts}"
    moment = job.finished_at or job.run_at
    return (job.id, job.kind, job.queue, job.state, attempts, ago(moment), _remark(job))


def _remark(job: JobSummary) -> str:
    if job.state == "running" and job.progress:
        return progress_text(job.progress)
    return str(job.error) if job.error and job.state != "done" else ""


def progress_text(progress: JobProgress) -> str:
    return f"{progress.percent:.0f}%" + (f" {progress.note}" if progress.note else "")


def error_text(error: Any) -> str:
    """An error as it is stored with a row."""
    return str(JobError.of(error))


def outcomes_text(outcomes: Mapping[str, int]) -> str:
    """The outcomes of rows: each count, but not their sum."""
    from trueup.reconcile.counts import in_words

    return ", ".join(f"{count:,} {in_words(name)}" for name, count in outcomes.items() if count and name != "claimed")


async def unknown(app: App, *, queue: str | None = None, kind: str | None = None) -> list[str]:
    """A line for each name that no live job, no running worker and no declaration of the App has."""
    lines = []
    depths = await app.jobs.queues() if queue is not None or kind is not None else ()
    if queue is not None:
        served = {each for worker in await app.workers.list() for each in worker.queues}
        lines += _line("queue", queue, {*served, *app.registry.queues(), *(depth.queue for depth in depths)})
    if kind is not None:
        lines += _line("kind", kind, {*(job.kind for job in app.registry), *(depth.kind for depth in depths)})
    return lines


def note_unknown(lines: list[str]) -> None:
    for line in lines:
        output.note(f"note: {line}")


def _line(what: str, name: str, names: set[str]) -> list[str]:
    if name in names:
        return []
    return [f"no worker, live job or declared job has the {what} {name!r}; {known_names(name, names)}"]
