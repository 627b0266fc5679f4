"""Queues and kinds: the waiting jobs of each, and pauses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from trueup.web.dashboard.visit import Visit


async def queues(visit: Visit) -> dict[str, Any]:
    depths = await visit.source.queues()
    paused = {(each.what, each.name): each for each in await visit.source.shared("paused", visit.app.jobs.paused, 0.0)}
    declared = list(visit.app.registry)
    names = {each["queue"] for each in depths} | {job.queue for job in declared}
    kinds = {each["kind"] for each in depths} | {job.kind for job in declared}
    names |= {name for what, name in paused if what == "queue"}
    kinds |= {name for what, name in paused if what == "kind"}
    tables = (
        ("queue", "Queues", _summed(depths, "queue", names, paused)),
        ("kind", "Kinds", _summed(depths, "kind", kinds, paused)),
    )
    return {
        "tables": [
            (what, title, most_urgent(rows, visit.most), max(0, len(rows) - visit.most)) for what, title, rows in tables
        ],
        "paused": len(paused),
    }


def most_urgent(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The most urgent ones, if there are too many; in their original order."""

    def urgency(row: dict[str, Any]) -> tuple[Any, ...]:
        return bool(row.get("pause")), row["oldest_due_s"] or 0.0, row["due"], row["running"]

    if len(rows) <= most:
        return rows
    chosen = sorted(range(len(rows)), key=lambda place: urgency(rows[place]), reverse=True)[:most]
    return [rows[place] for place in sorted(chosen)]


def _summed(
    depths: list[Any], what: str, names: Collection[str], paused: Mapping[tuple[str, str], Any]
) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {
        name: {"name": name, "pause": paused.get((what, name)), "due": 0, "later": 0, "running": 0, "oldest_due_s": 0.0}
        for name in sorted(names)
    }
    for each in depths:
        row = rows[each[what]]
        row["due"] += each["due"]
        row["later"] += each["queued"] - each["due"]
        row["running"] += each["running"]
        row["oldest_due_s"] = max(row["oldest_due_s"], each["oldest_due_s"] or 0.0)
    return list(rows.values())
