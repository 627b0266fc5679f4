"""Everything about one job."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from trueup.cli import output
from trueup.cli.ages import written
from trueup.cli.listing import progress_text
from trueup.cli.session import Session
from trueup.errors import NotFound
from trueup.observe.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from trueup.jobs.records import JobDetails, JobError


MAX_PAYLOAD = 4_000  # characters: what follows it must not scroll away


def find(session: Session, job_id: int) -> JobDetails:
    """Raises NotFound."""
    job = session.run(lambda app: app.jobs.get(job_id))
    if job is None:
        raise NotFound(f"no job {job_id} is known; its history may have passed its retention")
    return job


def show_job(session: Session, job: JobDetails) -> None:
    if session.json:
        output.write_json(asdict(job))
    else:
        output.write_block(_lines(job))


def _lines(job: JobDetails) -> list[tuple[str, str]]:
    """(label, text) pairs; the text may have lines of its own."""
    facts = [
        ("job", f"{job.id}"),
        ("kind", job.kind),
        ("state", job.state),
        ("reason", job.reason),
        ("queue", job.queue if job.lane == job.queue else f"{job.queue} (through lane {job.lane})"),
        ("fair key", job.key),
        ("unique key", job.unique_key),
        ("priority", str(job.priority) if job.priority else None),
        ("attempt", _attempts(job)),
        ("holder", f"{job.holder} (term {job.term})" if job.holder else None),
        *((label, _moment(getattr(job, name))) for label, name in MOMENTS),
        ("progress", progress_text(job.progress) if job.progress else None),
        ("arguments", _json(job.args)),
        ("meta", _json(job.meta) if job.meta else None),
        ("result", None if job.result is None else _json(job.result)),
    ]
    shown = [(label, printable_lines(text)) for label, text in facts if text]
    return [*shown, *(_error(error) for error in job.errors)]


MOMENTS = (
    ("enqueued", "enqueued_at"),
    ("due", "run_at"),
    ("claimed", "claimed_at"),
    ("stop asked", "cancel_requested_at"),
    ("finished", "finished_at"),
)


def _attempts(job: JobDetails) -> str:
    crashes = f", {job.crashes} of them ended with their worker" if job.crashes else ""
    return f"{job.attempt} of {job.max_attempts}{crashes}"


def _moment(moment: datetime | None) -> str | None:
    return written(moment) if moment is not None else None


def _json(value: object) -> str:
    text = printable_json(json.dumps(value, indent=2, ensure_ascii=False))
    more = len(text) - MAX_PAYLOAD
    return text if more <= 0 else f"{text[:MAX_PAYLOAD]}\n… {more:,} more characters; --json shows all"


def _error(error: JobError) -> tuple[str, str]:
    at = "at an unknown time" if error.at is None else error.at.isoformat()
    lines = [printable(f"attempt {error.attempt}, {at}: {error}")]
    if error.made_by:
        lines.append(printable(f"  by {error.made_by}"))
    if error.traceback:
        lines.append(printable_lines(error.traceback, "  "))
    return "error", "\n".join(lines)
