"""What needs attention, worst first: one sentence each, with the way to the page or the action that helps."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.store.workers import GRACE
from trueup.web.dashboard.formats import length
from trueup.web.dashboard.visit import Visit

MAX_COUNTED = 10_000  # dead jobs
LATE = 60.0  # seconds: longer than a busy moment


@dataclass(frozen=True, slots=True)
class Concern:
    """`level` is bad or warn. `act` is an address to post to, for those who may act; `link` a page to look at."""

    level: str
    text: str
    link: str
    label: str
    act: str | None = None
    act_label: str | None = None


async def concerns(visit: Visit) -> list[Concern]:
    found = [
        *await _workers(visit),
        *await _reconcilers(visit),
        *await _schedules(visit),
        *await _jobs(visit),
    ]
    return sorted(found, key=lambda concern: concern.level != "bad")


async def _workers(visit: Visit) -> list[Concern]:
    source = visit.source
    workers = await source.shared("workers", source.fleet.workers)
    if any(worker["alive"] for worker in workers):
        queues = await source.shared("queues", visit.app.store.views.queues)
        unserved = await source.shared("unserved", visit.app.store.views.unserved, 5.0) if queues else []
        return [
            Concern(
                "bad",
                f"{each['kind']} has waited in queue {each['queue']} for {length(each['oldest_s'])}: "
                "no running worker that serves the queue knows this kind.",
                visit.url("jobs", kind=[each["kind"]], state=["queued"]),
                "Show the jobs",
            )
            for each in unserved
        ]
    seen = max((worker["renewed_at"] for worker in workers), default=None)
    since = f" since {seen:%H:%M} UTC" if seen is not None and visit.now - seen > GRACE else ""
    text = f"No worker is alive{since}: nothing runs, no schedule ticks. Start one with trueup worker."
    return [Concern("bad", text, visit.url("fleet"), "Show the fleet")]


async def _reconcilers(visit: Visit) -> list[Concern]:
    summary = await visit.source.shared("sweeping", visit.app.reconcilers.summary, 2.0)
    found = [
        Concern(
            "bad",
            f"The last sweep of {name} ended with an error; its rows wait until one succeeds.",
            visit.url("reconcilers", name),
            "Show the error",
        )
        for name in summary["failing"]
    ]
    if summary["quarantined"]:
        number = summary["quarantined"]
        rows = "1 row is" if number == 1 else f"{number:,} rows are"
        text = f"{rows} in quarantine: out of attempts, and left alone until somebody decides."
        found.append(Concern("warn", text, visit.url("reconcilers"), "Decide"))
    if summary["resting"]:
        text = f"{_many(summary['resting'], 'reconciler')} paused by the circuit breaker after repeated failures."
        found.append(Concern("warn", text, visit.url("reconcilers"), "Show them"))
    return found


async def _schedules(visit: Visit) -> list[Concern]:
    source = visit.source
    planning = await source.shared("planning", visit.app.store.views.planning)
    attention = await source.shared("declared", visit.app.schedules.attention, 5.0)
    alive = any(each["alive"] for each in await source.shared("workers", source.fleet.workers))
    found = [
        Concern(
            "bad", f"Ticks of schedule {name} are refused and tried again.", visit.url("schedules", name), "Show why"
        )
        for name in planning["refused"]
    ]
    found += [
        Concern(
            "bad", f"Schedule {name} is ahead of the clock, so nothing fires.", visit.url("schedules", name), "Show it"
        )
        for name in planning["ahead"]
    ]
    found += [
        Concern(
            "bad",
            f"Running workers declare schedule {name}, and it is not stored or is retired.",
            visit.url("schedules"),
            "Show schedules",
        )
        for name in attention["missing"]
    ]
    if alive:
        found += [
            Concern(
                "warn",
                f"Schedule {name} fires, and no running worker declares it.",
                visit.url("schedules", name),
                "Show it",
                visit.url("schedules", name, "pause"),
                "Pause",
            )
            for name in attention["undeclared"]
        ]
        if planning["next_in_s"] is not None and planning["next_in_s"] < -LATE:
            text = f"A tick has been due for {length(-planning['next_in_s'])} and nobody has decided about it."
            found.append(Concern("bad", text, visit.url("schedules"), "Show schedules"))
    return found


async def _jobs(visit: Visit) -> list[Concern]:
    source = visit.source
    found = []
    queues = await source.shared("queues", visit.app.store.views.queues)
    late = [each for each in queues if (each["oldest_due_s"] or 0) > LATE]
    if late:
        worst = max(late, key=lambda each: each["oldest_due_s"])
        number = sum(each["due"] for each in late)
        text = f"{_many(number, 'job')} overdue; the oldest, {worst['kind']}, by {length(worst['oldest_due_s'])}."
        found.append(Concern("warn", text, visit.url("jobs", state=["queued"]), "Show them"))
    dead = await source.shared("dead", lambda: source.search.count("dead", MAX_COUNTED + 1), 2.0)
    if dead:
        number_text = f"more than {MAX_COUNTED:,} jobs are" if dead > MAX_COUNTED else _many(dead, "job")
        text = f"{number_text[0].upper()}{number_text[1:]} dead: out of attempts, waiting for a decision."
        found.append(Concern("warn", text, visit.url("jobs", state=["dead"]), "Decide"))
    return found


def _many(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number:,} {noun}s are"
