"""Audit: people's actions, with all filters in the address."""

from __future__ import annotations

from typing import Any

import orjson

from trueup.operate.actions import NAMES, VIAS, WHATS
from trueup.store.actions import ActionRecord
from trueup.store.views import MAX_ID
from trueup.web.dashboard.visit import Visit

PAGE = 50
WITHIN = ("1h", "24h", "7d", "30d")


def filters(visit: Visit) -> dict[str, str | None]:
    return {name: visit.text(name) for name in ("actor", "via", "action", "what", "name", "job", "within")}


async def audit(visit: Visit) -> dict[str, Any]:
    given, before = filters(visit), visit.number("before", 1, MAX_ID)
    asked: dict[str, Any] = {**given, "job": visit.number("job", 1, MAX_ID), "within": visit.duration("within")}
    page = await visit.source.shared(
        ("actions", orjson.dumps(asked), before), lambda: visit.app.actions.list(**asked, limit=PAGE, after=before), 0.0
    )
    return {
        "actions": [(each, _link(visit, each)) for each in page],
        "filters": given,
        "narrowed": any(given.values()),
        "older_url": visit.url("audit", **given, before=page.next) if page.next is not None else None,
        "newest_url": visit.url("audit", **given) if before is not None else None,
        "vias": VIAS,
        "whats": WHATS,
        "withins": WITHIN,
        "action_names": NAMES,
        "kept": visit.app.settings.keep_actions.total_seconds(),
    }


def _link(visit: Visit, record: ActionRecord) -> str | None:
    """The page of the changed object, if there is one."""
    match record.what:
        case "job" if record.count == 1 and record.keys:
            return visit.url("jobs", record.keys[0])
        case "queue" | "kind" as what:
            return visit.url("jobs", **{what: record.name})
        case "schedule" if record.name and record.action != "delete":
            return visit.url("schedules", record.name)
        case "reconciler" if record.name and record.action != "forget":
            return visit.url("reconcilers", record.name)
        case "row" if record.name and record.count == 1 and record.keys:
            return visit.url("reconcilers", record.name, "row", key=record.keys[0])
    return None
