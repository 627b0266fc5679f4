"""Recovery as a picture: when no worker ran, what was missed, and what has been caught up."""

from __future__ import annotations

from typing import Any

from trueup.operate.recovery import ReconcilerRecovery, Recovery, ScheduleRecovery
from trueup.web.dashboard import charts
from trueup.web.dashboard.visit import Visit

WINDOWS = ("6h", "24h", "7d")
FRESH = 15.0  # seconds; the report reads the ledger tick by tick


async def recovery(visit: Visit) -> dict[str, Any]:
    window = visit.text("window") if visit.text("window") in WINDOWS else "24h"
    assert window is not None
    report = await visit.source.shared(("recovery", window), lambda: visit.app.recovery(window), FRESH)
    return {
        "report": report,
        "window": window,
        "windows": WINDOWS,
        "downtimes": charts.spans("When no worker was alive", report.since, report.until, _down(report)),
        "axis": charts.axis(report.since, report.until),
        "schedules": [(each, _ticks(each)) for each in sorted(report.schedules, key=_open)[: visit.most]],
        "reconcilers": [(each, _rows(each)) for each in sorted(report.reconcilers, key=_left)[: visit.most]],
        "hidden": [max(0, len(each) - visit.most) for each in (report.schedules, report.reconcilers)],
    }


def _open(each: ScheduleRecovery) -> bool:
    """Schedules and reconcilers that need attention come first; otherwise the order stays."""
    return not each.undecided + each.unaccounted


def _left(each: ReconcilerRecovery) -> bool:
    return not (each.last_error or each.backlog)


def _down(report: Recovery) -> list[Any]:
    if not report.ever_alive:
        return [(report.since, report.until, "bad", "no worker has run yet")]
    spans = [
        (each.since, each.until, "bad", f"down {each.since:%b %d %H:%M} to {each.until:%b %d %H:%M} UTC")
        for each in report.downtimes
    ]
    if report.down_since is not None:
        spans.append((report.down_since, report.until, "bad", f"down since {report.down_since:%b %d %H:%M} UTC"))
    return spans


def _ticks(each: ScheduleRecovery) -> Any:
    return charts.shares(
        f"Ticks of {each.name}",
        [
            ("on time", "ok", each.on_time),
            ("late", "warn", each.late),
            ("backfilled", "run", each.backfilled),
            ("skipped", "off", sum(each.skipped.values())),
            ("undecided or unaccounted for", "bad", each.undecided + each.unaccounted),
        ],
    )


def _rows(each: ReconcilerRecovery) -> Any:
    handled, late = each.counts.claimed, each.lateness.late
    return charts.shares(
        f"Rows of {each.name}",
        [("on time", "ok", max(0, handled - late)), ("late", "warn", late), ("left", "bad", each.backlog or 0)],
    )
