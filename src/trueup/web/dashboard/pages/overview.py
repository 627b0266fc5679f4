"""The first page: what needs attention, and how things go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any

from trueup.store.flow import JobSpan
from trueup.web.dashboard import charts
from trueup.web.dashboard.formats import count, length, rate, short
from trueup.web.dashboard.pages.queues import most_urgent
from trueup.web.dashboard.visit import Visit

WINDOWS = {
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=5)),
    "24h": (timedelta(hours=24), timedelta(minutes=20)),
}
LATELY = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)


async def overview(visit: Visit) -> dict[str, Any]:
    source, views = visit.source, visit.app.store.views
    window = visit.text("window") if visit.text("window") in WINDOWS else "1h"
    assert window is not None
    _, step = WINDOWS[window]
    spans, live = await flow(visit, window)
    queues = await source.queues()
    workers = [each for each in await source.workers() if each["alive"]]
    planning = await source.shared("planning", views.planning)
    begins = [span.begins_at for span in spans]
    declared = {job.kind: job.queue for job in visit.app.registry}
    kinds = by_kind(queues, await source.shared("ended", lambda: views.ended(3600.0), 5.0), declared)
    return {
        "window": window,
        "windows": list(WINDOWS),
        "queues": most_urgent(kinds, visit.most),
        "hidden": max(0, len(kinds) - visit.most),
        "tiles": _tiles(visit, spans, queues, workers, planning, step),
        "throughput": charts.bars(
            f"Jobs that ended in the last {window}",
            begins,
            [
                ("done", "ok", [span.done for span in spans]),
                ("cancelled", "off", [span.cancelled for span in spans]),
                ("dead", "bad", [span.dead for span in spans]),
            ],
            step,
        ),
        "per": "minute" if step == MINUTE else f"{step // MINUTE} minutes",
        "backlog": charts.line(f"Jobs queued and running in the last {window}", begins, backlog(live, spans), "run"),
        "lateness": charts.line(
            f"Longest wait from due to started, or until now, in the last {window}",
            begins,
            [*(span.worst_waited_s for span in spans[:-1]), max(spans[-1].worst_waited_s, _oldest(queues))],
            "warn",
            seconds=True,
        ),
    }


async def flow(visit: Visit, window: str) -> tuple[list[JobSpan], int]:
    """The spans of this window, and how many jobs are live now."""
    within, step = WINDOWS[window]
    source = visit.source
    spans = await source.shared(("flow", window), lambda: source.flow.jobs(visit.now, within, step), 2.0)
    queues = await source.queues()
    return spans, sum(each["queued"] + each["running"] for each in queues)


def backlog(live: int, spans: list[JobSpan]) -> list[float]:
    """How many jobs were live at the end of each span, computed backwards from those that are live now."""
    levels: list[float] = []
    for span in reversed(spans):
        levels.append(float(max(0, live)))
        live += span.ended - span.enqueued
    return levels[::-1]


@dataclass(frozen=True, slots=True)
class Tile:
    name: str
    value: str
    note: str
    link: str
    level: str = ""


def _tiles(
    visit: Visit, spans: list[JobSpan], queues: list[Any], workers: list[Any], planning: Any, step: timedelta
) -> list[Tile]:
    recent = spans[-max(1, LATELY // step) - 1 :]  # the last one has only begun
    seconds = (visit.now - recent[0].begins_at).total_seconds()
    per_second = sum(span.ended for span in recent) / max(1.0, seconds)
    oldest = _oldest(queues)
    ended, dead = sum(span.ended for span in spans), sum(span.dead for span in spans)
    due, running = sum(each["due"] for each in queues), sum(each["running"] for each in queues)
    later = sum(each["queued"] - each["due"] for each in queues)
    stopping = sum(worker["stopping"] for worker in workers)
    slots = sum(worker["concurrency"] for worker in workers)
    return [
        Tile("Due now", count(due), f"{short(later)} later", visit.url("jobs", state="queued")),
        Tile("Running", count(running), f"of {short(slots)} slots", visit.url("jobs", state="running")),
        Tile("Throughput", rate(per_second), f"{short(ended)} ended", visit.url("jobs", state="done")),
        Tile(
            "Oldest due",
            length(oldest) if oldest else "none",
            _next_tick(planning["next_in_s"]),
            visit.url("schedules"),
            "bad" if oldest > 300 else "warn" if oldest > 60 else "",
        ),
        Tile("Died", count(dead), "in the time shown", visit.url("jobs", state="dead"), "warn" if dead else ""),
        Tile(
            "Workers",
            count(len(workers)),
            f"{stopping} stopping" if stopping else "alive",
            visit.url("fleet"),
            "" if workers else "bad",
        ),
    ]


def _oldest(queues: list[Any]) -> float:
    return max((each["oldest_due_s"] or 0.0 for each in queues), default=0.0)


def _next_tick(seconds: float | None) -> str:
    if seconds is None:
        return "no tick ahead"
    return f"tick in {length(seconds)}" if seconds >= 0 else f"tick late by {length(-seconds)}"


def by_kind(queues: list[Any], ended: list[Any], declared: Mapping[str, str]) -> list[dict[str, Any]]:
    """The live jobs of each kind and queue, and how many of the kind ended. A kind keeps its place when its last live job ends."""
    counts: dict[str, dict[str, int]] = {}
    for record in ended:
        counts.setdefault(record["kind"], {})[record["state"]] = record["count"]
    rows = [{**each, "later": each["queued"] - each["due"], "ended": counts.get(each["kind"], {})} for each in queues]
    nothing = {"due": 0, "later": 0, "running": 0, "oldest_due_s": None}
    idle = counts.keys() - {each["kind"] for each in queues}
    rows += [{**nothing, "kind": kind, "queue": declared.get(kind, ""), "ended": counts[kind]} for kind in idle]
    rows.sort(key=itemgetter("kind", "queue"))
    for before, row in pairwise([{"kind": None}, *rows]):
        row["key"] = row["kind"] if row["kind"] != before["kind"] else f"{row['kind']} {row['queue']}"
    return rows
