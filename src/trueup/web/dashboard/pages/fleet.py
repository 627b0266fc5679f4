"""The fleet: worker processes, what each declares, and the holders of leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from trueup.web.dashboard.visit import Visit


async def fleet(visit: Visit) -> dict[str, Any]:
    source = visit.source
    workers = await source.workers()
    leases = await source.shared(("leases", visit.most), lambda: visit.app.store.views.leases(visit.most + 1))
    releases: dict[str, int] = {}
    for worker in workers:
        if worker["alive"]:
            release = worker["release"] or ""
            releases[release] = releases.get(release, 0) + 1
    # Workers that are gone or were blocked come first.
    urgent = sorted(workers, key=lambda worker: (worker["alive"], worker["blocked"] is None))
    return {
        "workers": [{**each, "state": _state(each), "blocked": blocked(each)} for each in urgent[: visit.most]],
        "hidden": max(0, len(workers) - visit.most),
        "declared": _declared(workers),
        "alive": sum(worker["alive"] for worker in workers),
        "releases": releases if any(releases) else {},
        "leases": leases[: visit.most],
        "more_leases": len(leases) > visit.most,
    }


def _declared(workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The declarations of processes, grouped if they are the same."""
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in workers:
        names = tuple(tuple(each[what] or ()) for what in ("kinds", "schedules", "reconcilers"))
        alike.setdefault((each["service"] or "", *names), []).append(each)
    return [
        {
            "service": service,
            "kinds": kinds,
            "schedules": schedules,
            "reconcilers": reconcilers,
            "workers": len(those),
            "releases": sorted({each["release"] for each in those if each["release"]}),
        }
        for (service, kinds, schedules, reconcilers), those in sorted(alike.items())
    ]


def _state(worker: dict[str, Any]) -> str:
    if not worker["alive"]:
        return "gone"
    return "stopping" if worker["stopping"] else "working"


def blocked(worker: dict[str, Any]) -> dict[str, Any] | None:
    """What last blocked its event loop, with the moment read."""
    found = worker["blocked"]
    return None if found is None else {**found, "at": datetime.fromisoformat(found["at"])}
