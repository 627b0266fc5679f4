"""The actions of operators on pages. Each calls the function behind the command line, and returns a sentence and the next
page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trueup.errors import ConfigError, NotFound
from trueup.texts import counted
from trueup.web.dashboard import bulk
from trueup.web.dashboard.dry_runs import MAX_ROWS, ROWS
from trueup.web.dashboard.pages import jobs
from trueup.web.dashboard.pages.reconcilers import dry_run
from trueup.web.dashboard.pages.schedules import RATE, Backfill
from trueup.web.dashboard.visit import Visit, clean

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Said:
    text: str
    goes_to: str
    wrong: bool = False


Action = Callable[[Visit, Form], Awaitable[Said]]

DONE = {
    "retry": "is due now",
    "cancel": "is cancelled, or asked to stop if it is running",
    "revive": "is back in its queue, with all its attempts",
    "discard": "is discarded",
}


async def act_on_job(visit: Visit, form: Form) -> Said:
    found = await jobs.one(visit)
    name = visit.part("action")
    await bulk.action(visit.source, name)([found.id])
    return Said(f"Job {found.id} {DONE[name]}.", visit.url("jobs", found.id))


async def act_on_all(visit: Visit, form: Form) -> Said:
    name = visit.part("action")
    asked = jobs.narrowed(jobs.wanted(visit), name)
    work, total = bulk.matching(visit.source, name, asked), await bulk.counted(visit.source, asked)
    visit.bulk.start(visit.source, work, name, visit.person.name, jobs.described(visit), total=total)
    number = "everything that matches" if total is None else counted(total, "job")
    text = f"{name.capitalize()} of {number} {_soon(visit)}"
    return Said(text, visit.url("jobs", **jobs.filters(visit)))


async def stop_run(visit: Visit, form: Form) -> Said:
    run = visit.bulk.stop(visit.source.name, visit.part("run"))
    if run is None:
        return Said("It has ended already.", visit.url("jobs"), wrong=True)
    undone = run.state == "undone"
    text = "Undone before it began: nothing was changed." if undone else "Stopped. Its changes so far remain."
    return Said(text, visit.url(*run.about))


async def pause_or_resume(visit: Visit, form: Form, *, what: str) -> Said:
    """`what` is "queue" or "kind"."""
    name, jobs = visit.part("name"), visit.app.jobs
    thing: dict[str, Any] = {what: name}
    match visit.part("action"):
        case "pause":
            reason = clean(form.get("reason", ""), 200) or None
            changed = await jobs.pause(**thing, reason=reason)
            text = f"{what.capitalize()} {name} {'is paused' if changed else 'was paused already'}."
        case "resume":
            changed = await jobs.resume(**thing)
            text = f"{what.capitalize()} {name} {'is resumed' if changed else 'was not paused'}."
        case other:
            raise NotFound(f"there is no action {other!r} on queues and kinds")
    return Said(text, visit.url("queues"))


async def act_on_schedule(visit: Visit, form: Form) -> Said:
    name, schedules = visit.part("name"), visit.app.schedules
    match visit.part("action"):
        case "pause":
            changed = await schedules.pause(name, f"paused by {visit.person.name} on the dashboard")
            text = f"Schedule {name} is paused." if changed else f"Schedule {name} was paused already."
        case "resume":
            changed = await schedules.resume(name)
            text = (
                f"Schedule {name} is resumed, from its next tick on." if changed else f"Schedule {name} was not paused."
            )
        case "trigger":
            text = f"Schedule {name} fired once: job {await schedules.trigger(name)}."
        case "backfill":
            asked = [clean(form.get(field, ""), 40) for field in ("start", "end", "rate")]
            await Backfill.read(asked[0], asked[1], asked[2] or RATE).begin(visit, name)
            text = f"The backfill of {name} {_soon(visit)}"
        case other:
            raise NotFound(f"there is no action {other!r} on schedules")
    return Said(text, visit.url("schedules", name))


async def act_on_reconciler(visit: Visit, form: Form) -> Said:
    name, reconcilers = visit.part("name"), visit.app.reconcilers
    match visit.part("action"):
        case "pause":
            changed = await reconcilers.pause(name, f"paused by {visit.person.name} on the dashboard")
            text = f"Reconciler {name} is paused." if changed else f"Reconciler {name} was paused already."
        case "resume":
            changed = await reconcilers.resume(name)
            text = f"Reconciler {name} is resumed." if changed else f"Reconciler {name} was not paused."
        case "dry-run":
            text = await _dry_run(visit, form)
        case "release-all":
            number = await reconcilers.release_all(name)
            text = f"{counted(number, 'row')} of {name} released: the next sweep takes them."
        case "discard-all":
            number = await reconcilers.discard_all(name)
            text = f"{counted(number, 'row')} of {name} discarded."
        case "release" | "discard" as action:
            key = clean(form.get("key", ""), 1000)
            moved = await (reconcilers.release if action == "release" else reconcilers.discard)(name, [key])
            if not moved:
                raise NotFound(f"{name} has no row {key} in quarantine any more")
            text = (
                f"Row {key} is released: the next sweep takes it."
                if action == "release"
                else f"Row {key} is discarded. To undo, open its page and release it."
            )
        case other:
            raise NotFound(f"there is no action {other!r} on reconcilers")
    return Said(text, visit.url("reconcilers", name))


async def _dry_run(visit: Visit, form: Form) -> str:
    """Raises ConfigError for an invalid number of rows."""
    written = form.get("rows", "").strip() or str(ROWS)
    if not (written.isascii() and written.isdigit() and len(written) < 5 and 1 <= int(written) <= MAX_ROWS):
        raise ConfigError(f"a dry run takes 1 to {MAX_ROWS} rows, not {clean(written, 20)!r}")
    looked = await dry_run(visit, int(written), shadow=bool(form.get("shadow")))
    number = counted(len(looked.rows), "item" if looked.is_scan else "row")
    done = (
        "Its handler was called for each, and its writes were rolled back." if looked.shadow else "Nothing was changed."
    )
    return f"Dry run of {looked.name}: {number}. {done}"


def _soon(visit: Visit) -> str:
    return f"begins in {visit.bulk.undo_for:g} seconds. Until then it can be undone."
