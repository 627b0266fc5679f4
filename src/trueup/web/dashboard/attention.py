"""What needs attention, worst first: the findings of `app.check()`, each with the page on which something can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trueup.operate.checks import Finding
from trueup.web.dashboard.visit import Visit

# Where each check leads: parts of the address, its query, and what the link says.
PLACES: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "workers": (("fleet",), {}, "Show the fleet"),
    "ticks": (("schedules",), {}, "Show schedules"),
    "schedules": (("schedules",), {}, "Show schedules"),
    "kinds": (("jobs",), {"state": "queued"}, "Show the jobs"),
    "stranded_jobs": (("jobs",), {"state": "running"}, "Show the jobs"),
    "refused_jobs": (("jobs",), {}, "Show jobs"),
    "sweeps": (("reconcilers",), {}, "Show the error"),
    "overdue_rows": (("reconcilers",), {}, "Show reconcilers"),
    "overdue_jobs": (("jobs",), {"state": "queued"}, "Show the jobs"),
    "breakers": (("reconcilers",), {}, "Show reconcilers"),
    "quarantine": (("reconcilers",), {}, "Release or discard"),
    "dead_letters": (("jobs",), {"state": "dead"}, "Revive or discard"),
}

# What makes a sentence of a check's detail; those that are not here are sentences already.
SENTENCES = {
    "ticks": "Ticks are ",
    "schedules": "A schedule cannot fire: ",
    "stranded_jobs": "No worker can take over: ",
    "refused_jobs": "PostgreSQL refuses: ",
    "sweeps": "Sweeps fail: ",
    "overdue_rows": "Rows are overdue: ",
    "overdue_jobs": "Jobs are overdue: ",
    "breakers": "A circuit breaker is open: ",
    "quarantine": "Rows are in quarantine: ",
    "dead_letters": "Jobs ",
}
ON_THE_PAGE = ("quarantine", "dead_letters")  # what helps is a button there; the others need advice


@dataclass(frozen=True, slots=True)
class Concern:
    """`level` is bad or warn, `advice` what helps, `link` the page to look at."""

    check: str
    level: str
    text: str
    advice: str
    link: str
    label: str


async def concerns(visit: Visit) -> list[Concern]:
    report = await visit.source.shared("check", visit.app.check, 2.0)
    return sorted((_concern(visit, each) for each in report.findings), key=lambda concern: concern.level != "bad")


def titled(concerns: Sequence[Concern]) -> str:
    """The title of the page, by which a tab in the background shows that something needs attention."""
    return f"({len(concerns)}) " if concerns else ""


def badge(concerns: Sequence[Concern]) -> Markup:
    """The same in the navigation of every page."""
    if not concerns:
        return Markup("")
    return Markup('<span class="badge {}">{}<span class="aside"> need attention</span></span>').format(
        concerns[0].level, len(concerns)
    )


def _concern(visit: Visit, finding: Finding) -> Concern:
    path, query, label = PLACES.get(finding.check, (("fleet",), {}, "Look"))
    text = SENTENCES.get(finding.check, "") + finding.problem
    advice = "" if finding.check in ON_THE_PAGE else finding.advice
    level = "bad" if finding.severity == "error" else "warn"
    return Concern(finding.check, level, f"{text[:1].upper()}{text[1:]}", advice, visit.url(*path, **query), label)
