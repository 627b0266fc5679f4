"""A list of jobs: newest first, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from trueup.cli import output
from trueup.cli.ages import ago
from trueup.cli.output import Column, Table
from trueup.cli.session import Session

Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="Maximum number to show.")]

COLUMNS = (
    Column("id", right=True),
    Column("kind", wide=True),
    Column("queue"),
    Column("state"),
    Column("attempt", right=True),
    Column("due or ended"),
    Column("last error, progress", wide=True),
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
    moment = job["finished_at"] or job["run_at"]
    return (job["id"], job["kind"], job["queue"], job["state"], attempts, ago(moment), _remark(job))


def _remark(job: dict[str, Any]) -> str:
    if job["state"] == "running" and job["progress"]:
        return progress_text(job["progress"])
    return error_text(job["error"]) if job["error"] and job["state"] != "done" else ""


def progress_text(progress: dict[str, Any]) -> str:
    return f"{progress['percent']:.0f}%" + (f" {progress['note']}" if progress.get("note") else "")


def error_text(error: dict[str, Any]) -> str:
    return f"{error.get('type')}: {error.get('message')}"
