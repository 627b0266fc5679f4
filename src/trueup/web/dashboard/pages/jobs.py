"""Jobs: a search whose filters are all in the address, and one job."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from trueup.durations import parse_duration
from trueup.errors import ConfigError, NotFound
from trueup.jobs.states import JobState
from trueup.store.search import Wanted
from trueup.web.dashboard.attention import MAX_COUNTED
from trueup.web.dashboard.bulk import STATES
from trueup.web.dashboard.visit import Visit

PAGE = 50
MAX_ID = 2**63 - 1
AGES = ("", "5m", "1h", "24h", "7d")


def wanted(visit: Visit) -> Wanted:
    """The filters of the address. What cannot be read does not narrow."""
    states = tuple(state for state in visit.texts("state") if state in set(map(str, JobState)))
    return Wanted(
        states=states,
        kinds=visit.texts("kind"),
        queues=visit.texts("queue"),
        attempts=visit.number("attempts", 0, 2**31 - 1) or 0,
        after=_moment(visit, "age", visit.now),
        until=_moment(visit, "older", visit.now),
        arguments=tuple(_pairs(visit.texts("arg"))),
        error=visit.text("error"),
        schedule=visit.text("schedule"),
    )


def filters(visit: Visit) -> dict[str, Any]:
    """The same as parameters, for links that keep them."""
    one = {name: visit.text(name) for name in ("age", "older", "attempts", "error", "schedule")}
    return {**{name: list(visit.texts(name)) for name in ("state", "kind", "queue", "arg")}, **one}


async def jobs(visit: Visit) -> dict[str, Any]:
    source = visit.source
    asked, before = wanted(visit), visit.number("before", 1, MAX_ID)
    page = await source.shared(("jobs", asked, before), lambda: source.search.page(asked, limit=PAGE, before=before))
    queues = await source.shared("queues", visit.app.store.views.queues)
    ended = await source.shared("ended", lambda: visit.app.store.views.ended(3600.0), 5.0)
    dead = await source.shared("dead", lambda: source.search.count("dead", MAX_COUNTED + 1), 2.0)
    given = filters(visit)
    return {
        "page": page,
        "filters": given,
        "before": before,
        "narrowed": any(given.values()),
        "older_url": visit.url("jobs", **given, before=page.before) if page.before is not None else None,
        "newest_url": visit.url("jobs", **given) if before is not None else None,
        "states": [
            ("queued", sum(each["queued"] for each in queues)),
            ("running", sum(each["running"] for each in queues)),
            ("done", None),
            ("dead", f"{MAX_COUNTED:,}+" if dead > MAX_COUNTED else dead),
            ("cancelled", None),
        ],
        "kinds": sorted({each["kind"] for each in (*queues, *ended)} | {job.kind for job in visit.app.registry}),
        "queue_names": sorted({each["queue"] for each in queues} | set(given["queue"])),
        "ages": AGES,
        "actions": possible(asked),
        "runs": visit.bulk.of(source.name),
        "without": lambda name, value=None: visit.url("jobs", **_without(given, name, value)),
    }


def possible(asked: Wanted) -> list[str]:
    """The actions that some job in these states can take. All states at once is too easily a slip: nothing then."""
    return [action for action, states in STATES.items() if asked.states and set(asked.states) <= set(states)]


def narrowed(asked: Wanted, action: str) -> Wanted:
    """What an action is done to: what matches, in the states that it is for, and for a retry only what has failed before."""
    states = tuple(state for state in STATES[action] if not asked.states or state in asked.states)
    attempts = max(1, asked.attempts) if action == "retry" else asked.attempts
    return replace(asked, states=states, attempts=attempts)


def described(visit: Visit) -> str:
    """The filters in words."""
    given = filters(visit)
    words = [f"{name} {', '.join(values)}" for name, values in given.items() if isinstance(values, list) and values]
    words += [f"{name} {value}" for name, value in given.items() if isinstance(value, str) and value]
    return "; ".join(words) or "all jobs"


async def job(visit: Visit) -> dict[str, Any]:
    found = await one(visit)
    workers = {each["holder"]: each for each in await visit.source.shared("workers", visit.source.fleet.workers)}
    errors = found["errors"] or []
    return {
        "job": found,
        "title": f"{found['kind']} #{found['id']}",
        "args": visit.shown(found["kind"], found["args"]),
        "result": visit.shown(found["kind"], found["result"]),
        "progress": visit.shown(found["kind"], found["progress"]),
        "attempts": list(reversed(errors)),
        "worker": workers.get(found["holder"]),
        "actions": [action for action, states in STATES.items() if found["state"] in states],
        "moments": _moments(found),
    }


async def one(visit: Visit) -> dict[str, Any]:
    """Raises NotFound."""
    written = visit.part("id")
    job_id = int(written) if written.isascii() and written.isdigit() and len(written) < 20 else 0
    found = await visit.app.store.views.job(job_id) if 0 < job_id <= MAX_ID else None
    if found is None:
        raise NotFound(f"there is no job {written[:20]}; its history may have passed its retention")
    return found


def _moments(found: dict[str, Any]) -> list[tuple[str, datetime, str]]:
    listed = [
        ("Enqueued", found["enqueued_at"], ""),
        ("Due", found["run_at"], ""),
        (f"Attempt {found['attempt']} started", found["claimed_at"], f"term {found['term']}"),
        ("Asked to stop", found["cancel_requested_at"], ""),
        (str(found["state"]).capitalize(), found["finished_at"], found["reason"] or ""),
    ]
    return sorted([each for each in listed if each[1] is not None], key=lambda each: each[1])


def _moment(visit: Visit, name: str, now: datetime) -> datetime | None:
    written = visit.text(name, 20)
    if not written:
        return None
    try:
        return now.replace(microsecond=0, second=0) - min(parse_duration(written), timedelta(days=20_000))
    except ConfigError:
        return None


def _pairs(written: tuple[str, ...]) -> list[tuple[str, str]]:
    split = (each.partition("=") for each in written)
    return [(name.strip(), value.strip()) for name, equals, value in split if name.strip() and equals]


def _without(given: dict[str, Any], name: str, value: str | None) -> dict[str, Any]:
    kept = [each for each in given[name] if each != value] if value is not None else None
    return {**given, name: kept}
