"""Jobs: a search with all filters in the address, and one job."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from trueup.errors import ConfigError, NotFound
from trueup.jobs.records import JobDetails, JobPage
from trueup.jobs.states import JobState
from trueup.operate.given import arguments_of
from trueup.store.views import MAX_ID
from trueup.web.dashboard.bulk import STATES
from trueup.web.dashboard.visit import Visit

PAGE = 50
AGES = ("5m", "1h", "24h", "7d")
STATE_NAMES = frozenset(map(str, JobState))


def wanted(visit: Visit) -> dict[str, Any]:
    """The filters of the address, as `app.jobs.list` takes them. Raises ConfigError for one that cannot be read."""
    states = visit.texts("state")
    if unknown := [state for state in states if state not in STATE_NAMES]:
        raise ConfigError(f"state {unknown[0]!r}: there are {', '.join(JobState)}")
    given: dict[str, Any] = {
        "state": list(states) or None,
        "kind": visit.text("kind"),
        "queue": visit.text("queue"),
        "schedule": visit.text("schedule"),
        "min_attempts": visit.number("attempts", 0, 2**31 - 1) or 0,
        "arguments": arguments_of(visit.texts("arg")),
        "error_contains": visit.text("error"),
        "older_than": visit.duration("older"),
    }
    return given


def filters(visit: Visit) -> dict[str, Any]:
    """The same filters as parameters of links."""
    one = {name: visit.text(name) for name in ("kind", "queue", "error", "attempts", "older", "schedule")}
    return {"state": list(visit.texts("state")), "arg": list(visit.texts("arg")), **one}


async def jobs(visit: Visit) -> dict[str, Any]:
    source, app = visit.source, visit.app
    asked, before = wanted(visit), visit.number("before", 1, MAX_ID)
    page, args = await source.shared(("jobs", json.dumps(asked), before), lambda: _listed(visit, asked, before))
    queues = await source.queues()
    ended = await source.shared("ended", lambda: app.store.views.ended(3600.0), 5.0)
    dead = await source.shared("dead", lambda: app.jobs.count(state="dead"), 2.0)
    given = filters(visit)
    return {
        "page": page,
        "args": {job.id: visit.shown(job.kind, args[job.id]) for job in page if job.id in args},
        "searched": page.next is not None and len(page) < PAGE,
        "filters": given,
        "before": before,
        "narrowed": any(given.values()),
        "older_url": visit.url("jobs", **given, before=page.next) if page.next is not None else None,
        "newest_url": visit.url("jobs", **given) if before is not None else None,
        "states": [
            ("queued", f"{sum(each['queued'] for each in queues):,}"),
            ("running", f"{sum(each['running'] for each in queues):,}"),
            ("done", None),
            ("dead", str(dead)),
            ("cancelled", None),
        ],
        "kinds": sorted({each["kind"] for each in (*queues, *ended)} | {job.kind for job in app.registry}),
        "queue_names": sorted({each["queue"] for each in queues}),
        "argument_names": sorted(
            {name for job in app.registry if given["kind"] in (None, job.kind) for name in job.arguments.names}
        ),
        "error_types": sorted({job.error.type for job in page.jobs if job.error is not None}),
        "ages": AGES,
        "actions": possible(asked),
        "runs": visit.bulk.of(source.name, ("jobs",)),
        "undo_for": visit.bulk.undo_for,
        "all_states_url": visit.url("jobs", **{**given, "state": None}),
    }


async def _listed(visit: Visit, asked: dict[str, Any], before: int | None) -> tuple[JobPage, dict[int, dict[str, Any]]]:
    page = await visit.app.jobs.list(**asked, limit=PAGE, after=before)
    return page, await visit.source.flow.arguments(page)


def possible(asked: dict[str, Any]) -> list[str]:
    """The actions for jobs in these states; none for all states at once, which is too easily a mistake."""
    return [action for action, states in STATES.items() if asked["state"] and set(asked["state"]) <= set(states)]


def narrowed(asked: dict[str, Any], action: str) -> dict[str, Any]:
    """The jobs that an action applies to: those that match and are in one of its states, and for a retry have failed before.
    Raises NotFound for an unknown action.
    """
    if action not in STATES:
        raise NotFound(f"there is no action {action!r} on jobs")
    states = [state for state in STATES[action] if not asked["state"] or state in asked["state"]]
    attempts = max(1, asked["min_attempts"]) if action == "retry" else asked["min_attempts"]
    return {**asked, "state": states, "min_attempts": attempts}


def described(visit: Visit) -> str:
    """The filters in words."""
    given = filters(visit)
    words = [f"{name} {', '.join(values)}" for name, values in given.items() if isinstance(values, list) and values]
    words += [f"{name} {value}" for name, value in given.items() if isinstance(value, str) and value]
    return "; ".join(words) or "all jobs"


async def job(visit: Visit) -> dict[str, Any]:
    found = await visit.source.shared(("job", visit.part("id")), lambda: one(visit), 0.0)
    workers = {each["holder"]: each for each in await visit.source.workers()}
    return {
        "job": found,
        "title": f"{found.kind} #{found.id}",
        "progress": visit.progress(found.kind, found.progress),
        "args": visit.shown(found.kind, found.args),
        "result": visit.shown(found.kind, found.result),
        "meta": visit.shown(found.kind, found.meta) if found.meta else None,
        "attempts": found.errors[::-1],
        "worker": workers.get(found.holder),
        "actions": [action for action, states in STATES.items() if found.state in states],
        "moments": _moments(found),
        "done_by": await visit.source.shared(
            ("done by", found.id), lambda: visit.app.actions.list(job=found.id, limit=10), 0.0
        ),
    }


async def one(visit: Visit) -> JobDetails:
    """Raises NotFound."""
    written = visit.part("id")
    job_id = int(written) if written.isascii() and written.isdigit() and len(written) < 20 else 0
    found = await visit.app.jobs.get(job_id) if 0 < job_id <= MAX_ID else None
    if found is None:
        raise NotFound(f"there is no job {written[:20]}; its history may have passed its retention")
    return found


def _moments(found: JobDetails) -> list[tuple[str, datetime, str]]:
    listed = [
        ("Enqueued", found.enqueued_at, ""),
        ("Due", found.run_at if found.run_at != found.enqueued_at else None, ""),
        (f"Attempt {found.attempt} started", found.claimed_at, f"term {found.term}"),
        ("Asked to stop", found.cancel_requested_at, ""),
        (found.state.capitalize(), found.finished_at, found.reason or ""),
    ]
    return sorted([(what, at, more) for what, at, more in listed if at is not None], key=lambda each: each[1])
