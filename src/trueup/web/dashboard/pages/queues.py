"""Queues and kinds: what waits in each, and pausing them."""

from __future__ import annotations

from typing import Any

from trueup.web.dashboard.visit import Visit


async def queues(visit: Visit) -> dict[str, Any]:
    depths = await visit.source.shared("queues", visit.app.store.views.queues)
    paused = {(each.what, each.name): each for each in await visit.source.shared("paused", visit.app.jobs.paused, 0.0)}
    declared = list(visit.app.registry)
    names = {each["queue"] for each in depths} | {job.queue for job in declared}
    kinds = {each["kind"] for each in depths} | {job.kind for job in declared}
    names |= {name for what, name in paused if what == "queue"}
    kinds |= {name for what, name in paused if what == "kind"}
    return {
        "tables": [
            (
                "queue",
                "Queues",
                [_summed(depths, "queue", name, paused.get(("queue", name))) for name in sorted(names)],
            ),
            ("kind", "Kinds", [_summed(depths, "kind", name, paused.get(("kind", name))) for name in sorted(kinds)]),
        ],
        "paused": len(paused),
    }


def _summed(depths: list[Any], what: str, name: str, pause: Any) -> dict[str, Any]:
    own = [each for each in depths if each[what] == name]
    due = sum(each["due"] for each in own)
    return {
        "name": name,
        "pause": pause,
        "due": due,
        "later": sum(each["queued"] for each in own) - due,
        "running": sum(each["running"] for each in own),
        "oldest_due_s": max((each["oldest_due_s"] or 0.0 for each in own), default=0.0),
    }
