"""Reconcilers and scans: waiting rows, rates, outcomes, the quarantine, and the timeline of one row."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trueup.errors import ConfigError, NotFound
from trueup.jobs.records import JobError
from trueup.store.flow import SweptSpan
from trueup.web.dashboard import charts
from trueup.web.dashboard.dry_runs import MAX_ROWS, ROWS, Looked
from trueup.web.dashboard.visit import Visit

WITHIN, STEP = timedelta(hours=6), timedelta(minutes=5)
LATELY = 2  # whole spans, beside the current one, from which the rate is computed
COUNT_EVERY = 10.0  # seconds between counts, which read the user's own table
COUNT_FOR = 1.0  # seconds that a page waits for a count: the table may be large, or locked by a migration
QUARANTINED = 50


async def reconcilers(visit: Visit) -> dict[str, Any]:
    listed = await measured(visit, visit.most)
    every = await visit.source.shared("reconcilers", visit.app.reconcilers.list, 2.0)
    return {
        "reconcilers": listed,
        "hidden": len(every) - len(listed),
        "quarantined": await visit.source.shared(
            "quarantined", lambda: visit.app.reconcilers.quarantined(limit=QUARANTINED), 2.0
        ),
    }


async def measured(visit: Visit, most: int | None = None, count_for: float = COUNT_FOR) -> list[dict[str, Any]]:
    """All of them, or the most urgent ones."""
    source = visit.source
    listed = await source.shared("reconcilers", visit.app.reconcilers.list, 2.0)
    if most is not None and len(listed) > most:
        listed = sorted(
            listed, key=lambda each: (not each["last_error"], each["state"] == "active", not each["quarantined"])
        )[:most]
    swept = await source.shared("swept", lambda: source.flow.sweeps(visit.now, WITHIN, STEP), 2.0)
    counted = await asyncio.gather(*(_waiting(visit, each, count_for) for each in listed))
    attended = await _attended(visit)
    return [
        _measured(visit, each, waiting, swept.get(each["name"], []), attended=attended)
        for each, waiting in zip(listed, counted, strict=True)
    ]


async def reconciler(visit: Visit, count_for: float = COUNT_FOR) -> dict[str, Any]:
    name, source = visit.part("name"), visit.source
    found = await source.shared(("reconciler", name), lambda: visit.app.reconcilers.show(name, 20), 2.0)
    swept = await source.shared(("swept", name), lambda: source.flow.sweeps(visit.now, WITHIN, STEP, name), 2.0)
    spans = swept.get(name, [])
    quarantined = (
        []
        if found["what"] == "scan"
        else await source.shared(
            ("quarantined", name), lambda: visit.app.reconcilers.quarantined(name, limit=QUARANTINED), 2.0
        )
    )
    return {
        "reconciler": _measured(
            visit, found, await _waiting(visit, found, count_for), spans, attended=await _attended(visit)
        ),
        "title": name,
        "quarantined": quarantined,
        "dry": source.dry_runs.latest(name),
        "dry_rows": ROWS,
        "dry_max_rows": MAX_ROWS,
        "outcomes": charts.bars(
            f"Outcomes of rows of {name} in the last 6 hours",
            [span.begins_at for span in spans],
            [
                ("changed", "ok", [span.changed for span in spans]),
                ("unchanged", "idle", [span.unchanged for span in spans]),
                ("other", "off", [span.other for span in spans]),
                ("to retry", "warn", [span.retry for span in spans]),
                ("quarantined", "bad", [span.quarantined for span in spans]),
            ],
            STEP,
        )
        if spans
        else None,
    }


async def dry_run(visit: Visit, limit: int, *, shadow: bool) -> Looked:
    """What the next sweep would do, by the function behind `trueup reconcilers run --dry-run`. Raises NotFound and ConfigError."""
    name, dry_runs = visit.part("name"), visit.source.dry_runs
    dry = await dry_runs.make(name, lambda: visit.app.reconcilers.dry_run(name, limit=limit, shadow=shadow))
    texts = ("outcome", "item", "next_cursor")
    rows = [
        {key: str(visit.shown(name, value)) if key in texts and value else value for key, value in row.items()}
        for row in dry.rows
    ]
    facts = (dry.name, dry.would, rows, dry.more, dry.total, dry.why)
    return dry_runs.keep(Looked(*facts, shadow, visit.person.name, visit.now))


async def row(visit: Visit) -> dict[str, Any]:
    """One row's timeline, as far as it is recorded."""
    name, key = visit.part("name"), visit.text("key", 1000)
    found = None
    if key:
        records = await visit.source.shared(("row", name, key), lambda: visit.source.quarantine.show(name, [key]), 0.0)
        found = records.get(key)
    failures = list(JobError.all_of(found and found["errors"]))
    return {
        "name": name,
        "key": key,
        "title": f"{name} {key or ''}",
        "row": found,
        "story": _story(found, failures),
        "traceback": next((failure.traceback for failure in reversed(failures) if failure.traceback), None),
    }


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many rows wait for a reconciler, or why that is unknown."""

    rows: int | None
    why_not: str = ""


def _measured(
    visit: Visit, record: dict[str, Any], waiting: Waiting, spans: list[SweptSpan], *, attended: bool
) -> dict[str, Any]:
    rate = _rate(spans, visit.now)
    at_work = attended and record["state"] == "active" and not record["last_error"]
    return {
        **record,
        "waiting": waiting.rows,
        "uncounted": waiting.why_not,
        "rate": rate,
        "eta_s": waiting.rows / rate if waiting.rows and rate and at_work else None,
        "spark": charts.spark([span.total for span in spans], "ok", f"Rows of {record['name']} per 5 minutes, 6 hours")
        if spans
        else None,
    }


async def _attended(visit: Visit) -> bool:
    return any(each["alive"] for each in await visit.source.workers())


def _rate(spans: list[SweptSpan], now: datetime) -> float:
    """Rows per second, up to now."""
    recent = spans[-LATELY - 1 :]
    seconds = (now - recent[0].begins_at).total_seconds() if recent else 0.0
    return sum(span.total for span in recent) / seconds if seconds > 0 else 0.0


async def _waiting(visit: Visit, record: dict[str, Any], count_for: float) -> Waiting:
    """A count that takes longer continues in the background, and a later refresh of the page shows it."""
    if record["what"] == "scan":
        return Waiting(None, "a scan finds its items itself")
    if not record["declared_here"]:
        return Waiting(None, "this dashboard's App does not declare it")
    name = record["name"]
    try:
        async with asyncio.timeout(count_for):
            key = ("waiting", name)
            return await visit.source.shared(key, lambda: _count(visit, name), COUNT_EVERY, beside=True)
    except TimeoutError:
        return Waiting(None, f"counting takes longer than {count_for:g} s")


async def _count(visit: Visit, name: str) -> Waiting:
    try:
        async with visit.source.counts:
            rows = await visit.app.reconcilers.waiting(name)
    except (ConfigError, NotFound) as error:
        return Waiting(None, str(error))
    return Waiting(
        rows, "" if rows is not None else "too many to count, or counting took longer than statement_timeout"
    )


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    at: datetime
    word: str  # of a state
    headline: str
    detail: str = ""
    made_by: str = ""


def _story(found: dict[str, Any] | None, failures: list[JobError]) -> list[TimelineEntry]:
    """What is recorded about a row, newest first."""
    if found is None:
        return []
    held = found["state"] == "held"
    told = [
        TimelineEntry(found["claimed_at"], "running" if held else "", "Last claimed", f"attempt {found['attempt']}")
    ]
    for failed in failures:
        if failed.at is not None:
            headline = f"Attempt {failed.attempt or '?'} failed"
            told.append(TimelineEntry(failed.at, "failed", headline, str(failed), failed.made_by))
    if not held:
        headline = {"resting": "Settled", "quarantined": "Set aside"}.get(found["state"], found["state"].capitalize())
        told.append(TimelineEntry(found["changed_at"], found["state"], headline, found["reason"] or ""))
    if found["state"] == "resting" and found["due_at"] is not None:
        told.append(TimelineEntry(found["due_at"], "waiting", "Looked at again"))
    # One statement records a failure and what follows from it, with one time: the order above decides then.
    return sorted(told, key=lambda each: each.at)[::-1]
