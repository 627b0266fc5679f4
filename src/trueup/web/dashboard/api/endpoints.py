"""The table of endpoints: path, parameters, answer, and the function behind each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from pydantic import BaseModel

from trueup.errors import NotFound
from trueup.jobs.records import QueueDepth
from trueup.operate.given import arguments_of
from trueup.web.dashboard import bulk
from trueup.web.dashboard.api import models
from trueup.web.dashboard.formats import rule
from trueup.web.dashboard.pages import jobs as pages
from trueup.web.dashboard.pages import overview as overview_page
from trueup.web.dashboard.pages import reconcilers as reconciler_pages
from trueup.web.dashboard.pages.schedules import Backfill
from trueup.web.dashboard.visit import Visit, clean, readable

COUNT_FOR = 10.0  # seconds that a request waits for a count; unlike a page, a program asks once

Answer = Callable[[Visit, Any, Any], Awaitable[BaseModel]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`query` and `body` are checked before `answer(visit, query, body)` is called. One with a body writes."""

    path: str  # below /api/v1/{source}
    summary: str
    answer: Answer
    answers: type[BaseModel]
    query: type[BaseModel] = models.NoQuery
    body: type[BaseModel] | None = None

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


async def overview(visit: Visit, query: Any, body: Any) -> BaseModel:
    report = await visit.source.shared("check", visit.app.check, 2.0)
    workers = await visit.source.workers()
    return models.Overview(
        at=visit.now,
        ok=report.ok,
        findings=list(report.findings),
        queues=[QueueDepth(**each) for each in await visit.source.queues()],
        workers_alive=sum(each["alive"] for each in workers),
    )


async def flow(visit: Visit, query: models.FlowQuery, body: Any) -> BaseModel:
    spans, live = await overview_page.flow(visit, query.window)
    levels = overview_page.backlog(live, spans)
    return models.Flow(
        spans=[models.Span(**asdict(span), backlog=level) for span, level in zip(spans, levels, strict=True)]
    )


async def jobs(visit: Visit, query: models.JobQuery, body: Any) -> BaseModel:
    page = await visit.app.jobs.list(**_wanted(query), limit=query.limit, after=query.before)
    shown = [replace(job, progress=visit.progress(job.kind, job.progress)) for job in page]
    return models.JobList(jobs=[models.JobSummary.model_validate(job) for job in shown], next=page.next)


async def job(visit: Visit, query: Any, body: Any) -> BaseModel:
    found = await pages.one(visit)
    named = {name: getattr(found, name) for name in models.Job.model_fields}
    named |= {"args": visit.shown(found.kind, found.args), "result": visit.shown(found.kind, found.result)}
    named |= {"meta": visit.shown(found.kind, found.meta), "progress": visit.progress(found.kind, found.progress)}
    return models.Job.model_validate({**named, "holder": None if found.holder is None else str(found.holder)})


async def act_on_job(visit: Visit, query: Any, body: Any) -> BaseModel:
    act = bulk.action(visit.source, visit.part("action"))
    found = await pages.one(visit)
    await act([found.id])
    return models.Done(done=f"job {found.id}: {visit.part('action')}")


async def act_on_matching(visit: Visit, query: Any, body: models.JobFilter) -> BaseModel:
    name, wanted = visit.part("action"), _wanted(body)
    asked, what = pages.narrowed(wanted, name), body.model_dump_json(exclude_defaults=True)
    work, total = bulk.matching(visit.source, name, asked), await bulk.counted(visit.source, asked)
    run = visit.bulk.start(visit.source, work, name, visit.person.name, what, total=total)
    return models.Run.model_validate(run)


async def runs(visit: Visit, query: Any, body: Any) -> BaseModel:
    return models.Runs(runs=[models.Run.model_validate(run) for run in visit.bulk.of(visit.source.name)])


async def stop_run(visit: Visit, query: Any, body: Any) -> BaseModel:
    written = visit.part("run")
    run = visit.bulk.stop(visit.source.name, written)
    if run is None:
        raise NotFound(f"nothing is under way as run {written[:20]}")
    return models.Run.model_validate(run)


async def fleet(visit: Visit, query: Any, body: Any) -> BaseModel:
    workers = await visit.source.workers()
    leases = await visit.source.shared("leases", visit.app.store.views.leases)
    return models.Fleet(
        workers=[models.Worker.model_validate({**each, "holder": str(each["holder"])}) for each in workers],
        leases=[models.Lease(**each) for each in leases],
    )


async def schedules(visit: Visit, query: Any, body: Any) -> BaseModel:
    found = await visit.source.shared("schedules", visit.app.schedules.list)
    return models.Schedules(
        schedules=[models.ScheduleSummary(**{**each, "rule": rule(each["spec"])}) for each in found]
    )


async def schedule(visit: Visit, query: Any, body: Any) -> BaseModel:
    found = await visit.app.schedules.show(visit.part("name"), 60)
    ticks = [models.Tick(**each) for each in found["ticks"]]
    return models.Schedule(**{**found, "rule": rule(found["spec"]), "ticks": ticks})


async def year(visit: Visit, query: models.YearQuery, body: Any) -> BaseModel:
    found = await visit.app.schedules.preview(visit.part("name"), query.year or visit.now.year)
    return models.Year.model_validate(found)


async def act_on_schedule(visit: Visit, query: Any, body: Any) -> BaseModel:
    name, operations = visit.part("name"), visit.app.schedules
    match visit.part("action"):
        case "pause":
            done = "paused" if await operations.pause(name, f"paused by {visit.person.name}") else "was paused already"
        case "resume":
            done = "resumed" if await operations.resume(name) else "was not paused"
        case "trigger":
            done = f"triggered: job {await operations.trigger(name)}"
        case other:
            raise NotFound(f"there is no action {other!r} on schedules")
    return models.Done(done=f"schedule {name}: {done}")


async def preview_backfill(visit: Visit, query: models.BackfillRange, body: Any) -> BaseModel:
    found = await Backfill.read(query.start, query.end, query.rate).preview(visit, visit.part("name"))
    return models.BackfillPreview(ticks=found.ticks, missing=len(found.to_fire), first=list(found.to_fire[:100]))


async def backfill(visit: Visit, query: Any, body: models.BackfillRange) -> BaseModel:
    run = await Backfill.read(body.start, body.end, body.rate).begin(visit, visit.part("name"))
    return models.Run.model_validate(run)


async def reconcilers(visit: Visit, query: Any, body: Any) -> BaseModel:
    found = await reconciler_pages.measured(visit, count_for=COUNT_FOR)
    return models.Reconcilers(reconcilers=[models.ReconcilerSummary(**each) for each in found])


async def reconciler(visit: Visit, query: Any, body: Any) -> BaseModel:
    name = visit.part("name")
    found = (await reconciler_pages.reconciler(visit, COUNT_FOR))["reconciler"]
    quarantine = [] if found["what"] == "scan" else await visit.app.reconcilers.quarantined(name, limit=200)
    rows = [models.Quarantined(**each) for each in quarantine]
    return models.Reconciler(**{**found, "quarantine": rows})


async def row(visit: Visit, query: models.Key, body: Any) -> BaseModel:
    found = await reconciler_pages.row(visit)
    if found["row"] is None:
        raise NotFound(f"nothing is recorded about row {query.key[:100]} of {found['name']}")
    told = [models.Happened.model_validate(each) for each in found["story"]]
    return models.RowTimeline(**{**found["row"], "reconciler": found["name"], "key": query.key, "timeline": told})


async def act_on_reconciler(visit: Visit, query: Any, body: Any) -> BaseModel:
    name, operations = visit.part("name"), visit.app.reconcilers
    match visit.part("action"):
        case "pause":
            done = "paused" if await operations.pause(name, f"paused by {visit.person.name}") else "was paused already"
        case "resume":
            done = "resumed" if await operations.resume(name) else "was not paused"
        case "release-all":
            done = f"{await operations.release_all(name)} rows released"
        case "discard-all":
            done = f"{await operations.discard_all(name)} rows discarded"
        case other:
            raise NotFound(f"there is no action {other!r} on reconcilers")
    return models.Done(done=f"reconciler {name}: {done}")


async def dry_run(visit: Visit, query: Any, body: models.DryRunAsked) -> BaseModel:
    return models.DryRun.model_validate(await reconciler_pages.dry_run(visit, body.limit, shadow=body.shadow))


async def act_on_row(visit: Visit, query: Any, body: models.Key) -> BaseModel:
    name, key, operations = visit.part("name"), readable("key", body.key, 1000), visit.app.reconcilers
    action = visit.part("action")
    if action not in ("release", "discard"):
        raise NotFound(f"there is no action {action!r} on rows")
    if not await (operations.release if action == "release" else operations.discard)(name, [key]):
        raise NotFound(f"{name} has no row {key} in quarantine")
    return models.Done(done=f"row {key}: {action}")


async def recovery(visit: Visit, query: models.RecoveryQuery, body: Any) -> BaseModel:
    window = query.window
    report = await visit.source.shared(("recovery", window), lambda: visit.app.recovery(window), 15.0)
    return models.Recovery.model_validate(report)


async def queues(visit: Visit, query: Any, body: Any) -> BaseModel:
    depths = await visit.source.queues()
    paused = await visit.app.jobs.paused()
    return models.Queues(
        queues=[QueueDepth(**each) for each in depths],
        paused=list(paused),
    )


async def pause_or_resume(visit: Visit, query: Any, body: models.Reason, *, what: str) -> BaseModel:
    name, operations = visit.part("name"), visit.app.jobs
    thing: dict[str, Any] = {what: name}
    match visit.part("action"):
        case "pause":
            done = "paused" if await operations.pause(**thing, reason=_clean(body.reason)) else "was paused already"
        case "resume":
            done = "resumed" if await operations.resume(**thing) else "was not paused"
        case other:
            raise NotFound(f"there is no action {other!r} on queues and kinds")
    return models.Done(done=f"{what} {name}: {done}")


async def alerts(visit: Visit, query: Any, body: Any) -> BaseModel:
    rules = await visit.source.shared("alerts", visit.app.alerts.list, 2.0)
    return models.Alerts(alerts=list(rules))


async def actions(visit: Visit, query: models.ActionQuery, body: Any) -> BaseModel:
    page = await visit.app.actions.list(
        actor=_text("actor", query.actor),
        via=query.via,
        action=_text("action", query.action),
        what=query.what,
        name=_text("name", query.name),
        job=query.job,
        within=_text("within", query.within),
        limit=query.limit,
        after=query.before,
    )
    return models.ActionList(actions=list(page), next=page.next)


ENDPOINTS = (
    Endpoint("/overview", "Findings, and the backlog", overview, models.Overview),
    Endpoint("/flow", "Throughput, backlog and lateness over time", flow, models.Flow, models.FlowQuery),
    Endpoint("/jobs", "Matching jobs, newest first", jobs, models.JobList, models.JobQuery),
    Endpoint("/jobs/{id}", "One job", job, models.Job),
    Endpoint("/jobs/{id}/{action}", "retry, cancel, revive or discard", act_on_job, models.Done, body=models.Nothing),
    Endpoint(
        "/jobs-matching/{action}",
        "retry, cancel, revive or discard all matching jobs, in the background",
        act_on_matching,
        models.Run,
        body=models.JobFilter,
    ),
    Endpoint("/runs", "Bulk actions and backfills, newest first", runs, models.Runs),
    Endpoint("/runs/{run}/stop", "Stop a bulk action or backfill", stop_run, models.Run, body=models.Nothing),
    Endpoint("/fleet", "Workers and leases", fleet, models.Fleet),
    Endpoint("/schedules", "All schedules", schedules, models.Schedules),
    Endpoint("/schedules/{name}", "One schedule and its latest ticks", schedule, models.Schedule),
    Endpoint(
        "/schedules/{name}/year",
        "The effect of clock changes on its ticks in a year",
        year,
        models.Year,
        models.YearQuery,
    ),
    Endpoint(
        "/schedules/{name}/backfill",
        "The ticks of a range that a backfill would fire",
        preview_backfill,
        models.BackfillPreview,
        models.BackfillRange,
    ),
    Endpoint(
        "/schedules/{name}/backfill",
        "Fire the ticks of a range that were not fired, in the background",
        backfill,
        models.Run,
        body=models.BackfillRange,
    ),
    Endpoint(
        "/schedules/{name}/{action}", "pause, resume or trigger", act_on_schedule, models.Done, body=models.Nothing
    ),
    Endpoint("/reconcilers", "All reconcilers and scans", reconcilers, models.Reconcilers),
    Endpoint("/reconcilers/{name}", "One reconciler and its quarantine", reconciler, models.Reconciler),
    Endpoint("/reconcilers/{name}/row", "The record and timeline of one row", row, models.RowTimeline, models.Key),
    Endpoint(
        "/reconcilers/{name}/dry-run",
        "The rows that the next sweep would take; with shadow, what its handler would do with them",
        dry_run,
        models.DryRun,
        body=models.DryRunAsked,
    ),
    Endpoint(
        "/reconcilers/{name}/{action}",
        "pause, resume, release-all or discard-all; the last two empty the quarantine",
        act_on_reconciler,
        models.Done,
        body=models.Nothing,
    ),
    Endpoint(
        "/reconcilers/{name}/quarantine/{action}",
        "release or discard a quarantined row",
        act_on_row,
        models.Done,
        body=models.Key,
    ),
    Endpoint("/queues", "The backlog of each queue, and paused queues and kinds", queues, models.Queues),
    Endpoint(
        "/queues/{name}/{action}",
        "pause or resume a queue",
        partial(pause_or_resume, what="queue"),
        models.Done,
        body=models.Reason,
    ),
    Endpoint(
        "/kinds/{name}/{action}",
        "pause or resume a kind",
        partial(pause_or_resume, what="kind"),
        models.Done,
        body=models.Reason,
    ),
    Endpoint("/alerts", "Every check with its limit, and firing alerts", alerts, models.Alerts),
    Endpoint("/actions", "The audit log, newest first", actions, models.ActionList, models.ActionQuery),
    Endpoint("/recovery", "Missed and caught-up ticks and rows", recovery, models.Recovery, models.RecoveryQuery),
)


def _wanted(given: models.JobFilter) -> dict[str, Any]:
    """The conditions as `app.jobs.list` takes them."""
    return {
        "state": list(given.state) or None,
        "kind": _text("kind", given.kind),
        "queue": _text("queue", given.queue),
        "schedule": _text("schedule", given.schedule),
        "min_attempts": given.attempts,
        "arguments": arguments_of(readable("arg", each, 200) for each in given.arg),
        "error_contains": _text("error", given.error),
        "older_than": _text("older", given.older),
    }


def _text(name: str, given: str | None) -> str | None:
    return readable(name, given or "", 200) or None


def _clean(text: str | None) -> str | None:
    return clean(text, 200) or None if text else None
