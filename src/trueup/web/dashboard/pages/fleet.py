"""The fleet: worker processes, what each declares, and who holds which lease."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from trueup.web.dashboard.visit import Visit


async def fleet(visit: Visit) -> dict[str, Any]:
    source = visit.source
    workers = await source.shared("workers", source.fleet.workers)
    releases: dict[str, int] = {}
    for worker in workers:
        if worker["alive"]:
            release = worker["release"] or "unknown"
            releases[release] = releases.get(release, 0) + 1
    return {
        "workers": [{**worker, "state": _state(worker), "blocked": blocked(worker)} for worker in workers],
        "alive": sum(worker["alive"] for worker in workers),
        "releases": releases,
        "leases": await source.shared("leases", source.fleet.leases),
    }


def _state(worker: dict[str, Any]) -> str:
    if not worker["alive"]:
        return "gone"
    return "stopping" if worker["stopping"] else "working"


def blocked(worker: dict[str, Any]) -> dict[str, Any] | None:
    """What last blocked its event loop, with the moment read."""
    found = worker["blocked"]
    return None if found is None else {**found, "at": datetime.fromisoformat(found["at"])}
