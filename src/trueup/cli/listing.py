"""A list of jobs: newest first, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from trueup.cli import output
from trueup.cli.ages import ago, since, span
from trueup.cli.output import Column, Table
from trueup.cli.session import Session

Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="At most so many.")]

COLUMNS = (
    Column("id", right=True),
    Column("kind"),
    Column("queue"),
    Column("state"),
    Column("attempt", right=True),
    Column("when"),
    Column("last error or progress", wide=True),
)


def list_jobs(session: Session, *, states: Sequence[str], kind: str | None, queue: str | None, limit: int) -> None:
    # One more than shown, to know whether there are more.
    jobs = session.run(
        lambda app: app.store.views.jobs(states=states, kind=kind, queue=queue, limit=limit + 1),
    )
    if session.json:
        output.write_json(jobs[:limit])
        return
    table = Table("Jobs", COLUMNS, [_row(job) for job in jobs[:limit]], empty="no jobs")
    output.show(table)
    if len(jobs) > limit:
        output.note(f"there are more; the newest {limit} are shown (--limit)")


def _row(job: dict[str, Any]) -> tuple[object, ...]:
    attempts = f"{job['attempt']}/{job['max_attempts']}"
    return (job["id"], job["kind"], job["queue"], job["state"], attempts, _when(job), _remark(job))


def _when(job: dict[str, Any]) -> str:
    if job["finished_at"] is not None:
        return ago(job["finished_at"])
    late = since(job["run_at"])
    return f"due {span(late)} ago" if late >= 0 else f"due in {span(-late)}"


def _remark(job: dict[str, Any]) -> str:
    progress, error = job["progress"], job["error"]
    if progress and job["finished_at"] is None:
        return progress_text(progress)
    return error_text(error) if error else ""


def progress_text(progress: dict[str, Any]) -> str:
    return f"{progress['percent']:.0f}%" + (f" {progress['note']}" if progress.get("note") else "")


def error_text(error: dict[str, Any]) -> str:
    return f"{error.get('type')}: {error.get('message')}"
