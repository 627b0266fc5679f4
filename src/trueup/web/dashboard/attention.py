"""What needs attention, worst first: the findings of `app.check()`, each with the page on which something can be done about it."""

from __future__ import annotations

from dataclasses import dataclass

from trueup.operate.checks import Finding
from trueup.web.dashboard.visit import Visit

# Where each check leads: parts of the address, its query, and what the link says.
PLACES: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "workers": (("fleet",), {}, "Show the fleet"),
    "ticks": (("schedules",), {}, "Show schedules"),
    "schedules": (("schedules",), {}, "Show schedules"),
    "kinds": (("jobs",), {"state": "queued"}, "Show the jobs"),
    "sweeps": (("reconcilers",), {}, "Show the error"),
    "overdue_rows": (("reconcilers",), {}, "Show reconcilers"),
    "overdue_jobs": (("jobs",), {"state": "queued"}, "Show the jobs"),
    "breakers": (("reconcilers",), {}, "Show reconcilers"),
    "quarantine": (("reconcilers",), {}, "Release or discard"),
    "dead_letters": (("jobs",), {"state": "dead"}, "Revive or discard"),
}


@dataclass(frozen=True, slots=True)
class Concern:
    """`level` is bad or warn, `advice` what helps, `link` the page to look at."""

    level: str
    text: str
    advice: str
    link: str
    label: str


async def concerns(visit: Visit) -> list[Concern]:
    report = await visit.source.shared("check", visit.app.check, 2.0)
    return sorted((_concern(visit, each) for each in report.findings), key=lambda concern: concern.level != "bad")


def _concern(visit: Visit, finding: Finding) -> Concern:
    path, query, label = PLACES.get(finding.check, (("fleet",), {}, "Look"))
    text = f"{finding.problem[:1].upper()}{finding.problem[1:]}"
    level = "bad" if finding.severity == "error" else "warn"
    return Concern(level, text, f"{finding.advice[:1].upper()}{finding.advice[1:]}", visit.url(*path, **query), label)
