"""Alert rules for Prometheus and a dashboard for Grafana, from the checks and from what an App declares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trueup.config import CHECKS
from trueup.operate.checks import advice
from trueup.program import typed

WARNINGS = frozenset({"overdue_jobs", "breakers", "quarantine", "dead_letters"})  # the severity of the others is error
AT_ONCE = timedelta()  # an increase is an event that has happened: there is nothing to wait for
RATE = "[$__rate_interval]"  # what Grafana fits to the width of a chart
UNWATCHED_FOR = timedelta(minutes=5)  # a deployment restarts every worker in less


@dataclass(frozen=True, slots=True)
class Registered:
    """What an App declares, by name, and the settings that rules follow."""

    kinds: tuple[str, ...] = ()
    reconcilers: tuple[str, ...] = ()
    scans: tuple[str, ...] = ()
    limits: Mapping[str, float | None] | None = None
    alert_after: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert rule. `wait` is how long the expression must hold."""

    alert: str
    expr: str
    wait: timedelta
    severity: str  # "critical" or "warning"
    summary: str
    advice: str


def rules(registered: Registered) -> list[Rule]:
    """A rule per check that is not switched off, one for a fleet without a watcher, and those for what is declared."""
    found = [*_of_checks(registered), *_of_processes()]
    if registered.kinds:
        found += _of_jobs(registered)
    if registered.reconcilers:
        found += _of_reconcilers(_among("reconciler", registered.reconcilers))
    if registered.scans:
        found += _of_scans(_among("scan", registered.scans))
    return found


def _of_checks(registered: Registered) -> Iterator[Rule]:
    limits = registered.limits or {}
    for check in CHECKS:
        if limits.get(check, 0.0) is not None:
            yield Rule(
                f"Trueup{check.title().replace('_', '')}",
                f'max by (check) (1 - trueup_check_ok{{check="{check}"}}) > 0',
                registered.alert_after,
                "warning" if check in WARNINGS else "critical",
                f"trueup: the check {check} fails",
                f"See what is wrong: {typed('trueup status --check')}. What to do: {advice(check)}",
            )
    yield Rule(
        "TrueupUnwatched",
        "absent(trueup_check_ok)",
        UNWATCHED_FOR,
        "critical",
        "trueup: no worker serves the results of the checks",
        "No worker runs, none can reach the database, or Prometheus does not reach them. Ask from outside: "
        f"{typed('trueup status --check')}",
    )


def _of_processes() -> Iterator[Rule]:
    yield Rule(
        "TrueupDowntime",
        _grew("trueup_downtime_seconds_total", "1h"),
        AT_ONCE,
        "warning",
        "trueup: no worker was alive for {{ $value | humanizeDuration }}",
        f"See what was missed and what is caught up with: {typed('trueup recovery')}",
    )
    yield Rule(
        "TrueupWorkerLeasesLost",
        _grew("trueup_worker_leases_lost_total", "15m"),
        AT_ONCE,
        "warning",
        "trueup: a worker lost its lease",
        "The process was frozen or cut off for longer than lease_for: look for CPU limits, swapping and network trouble.",
    )
    yield Rule(
        "TrueupServiceFailures",
        _grew("trueup_service_failures_total", "15m", by="service"),
        AT_ONCE,
        "warning",
        "trueup: the service {{ $labels.service }} of a worker fails",
        "The worker goes on; `service failed` in its log has the error.",
    )


def _of_jobs(registered: Registered) -> Iterator[Rule]:
    kinds = _among("kind", registered.kinds)
    allowed = (registered.limits or {}).get("overdue_jobs") or 3600.0  # also where the check is switched off
    yield Rule(
        "TrueupJobsDied",
        _grew("trueup_jobs_buried_total", "15m", kinds, "kind"),
        AT_ONCE,
        "warning",
        "trueup: jobs of the kind {{ $labels.kind }} died",
        f"{typed('trueup dead list')}, then revive or discard them",
    )
    yield Rule(
        "TrueupJobsLate",
        f"max by (kind, queue) (trueup_jobs_oldest_due_age_seconds{{{kinds}}}) > {allowed:g}",
        registered.alert_after,
        "warning",
        "trueup: {{ $labels.kind }} has waited in queue {{ $labels.queue }} for {{ $value | humanizeDuration }}",
        advice("overdue_jobs"),
    )


def _of_reconcilers(names: str) -> Iterator[Rule]:
    yield Rule(
        "TrueupRowsQuarantined",
        _grew("trueup_rows_total", "15m", f'outcome="quarantined",{names}', "reconciler"),
        AT_ONCE,
        "warning",
        "trueup: the reconciler {{ $labels.reconciler }} put rows into quarantine",
        advice("quarantine"),
    )
    yield Rule(
        "TrueupSweepsRefused",
        _grew("trueup_sweeps_refused_total", "15m", names, "reconciler"),
        AT_ONCE,
        "critical",
        "trueup: a sweep of {{ $labels.reconciler }} was refused, because it would have changed too many rows",
        typed("trueup reconcilers show {{ $labels.reconciler }}"),
    )


def _of_scans(names: str) -> Iterator[Rule]:
    yield Rule(
        "TrueupScanItemsFailed",
        _grew("trueup_scan_items_failed_total", "15m", names, "scan"),
        AT_ONCE,
        "warning",
        "trueup: items of the scan {{ $labels.scan }} fail",
        "`scan item failed` in the log of the workers has the errors.",
    )


def _grew(metric: str, window: str, matcher: str = "", by: str = "") -> str:
    """True if the counter grew in the window. A new series counts in full: `increase` alone does not know that it began at 0."""
    series = f"{metric}{{{matcher}}}" if matcher else metric
    new = f"({series} unless {series} offset {window})"
    return f"sum{f' by ({by}) ' if by else ''}({new} or increase({series}[{window}])) > 0"


def _among(label: str, names: Iterable[str]) -> str:
    """A matcher in PromQL: the label is one of these names, whatever characters are in them."""
    return f"{label}=~{json.dumps('|'.join(re.escape(name) for name in sorted(names)), ensure_ascii=False)}"


def prometheus(registered: Registered) -> dict[str, Any]:
    """The rules as a rule file of Prometheus."""
    written = [
        {
            "alert": each.alert,
            "expr": each.expr,
            "for": f"{each.wait.total_seconds():.0f}s",
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.summary, "description": each.advice},
        }
        for each in rules(registered)
    ]
    return {"groups": [{"name": "trueup", "rules": written}]}


def yaml(document: Mapping[str, Any]) -> list[str]:
    """The same document as readable YAML. Texts are quoted as in JSON, which is valid YAML."""
    return list(_block(document, ""))


def _block(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, each in value.items():
        if isinstance(each, Mapping):
            yield f"{indent}{key}:"
            yield from _block(each, f"{indent}  ")
        elif isinstance(each, list):
            yield f"{indent}{key}:"
            for item in each:
                first, *rest = _block(item, f"{indent}    ")
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        else:
            yield f"{indent}{key}: {json.dumps(each, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: `queries` are expressions with their legends."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def panels(registered: Registered) -> list[Panel]:
    """The failing checks, then charts about declared jobs, reconcilers and scans, and last the problems of workers."""
    shown = [_panel("Failing checks", "none", ("max by (check) (1 - trueup_check_ok)", "{{check}}"))]
    if registered.kinds:
        shown += _panels_of_jobs(_among("kind", registered.kinds))
    if registered.reconcilers:
        shown += _panels_of_reconcilers(_among("reconciler", registered.reconcilers))
    if registered.scans:
        items = f"sum by (scan) (rate(trueup_scan_items_total{{{_among('scan', registered.scans)}}}{RATE}))"
        shown.append(_panel("Items of scans", "ops", (items, "{{scan}}")))
    trouble = _panel(
        "Trouble of workers",
        "ops",
        (f"sum(rate(trueup_worker_leases_lost_total{RATE}))", "leases lost"),
        (f"sum(rate(trueup_jobs_rescued_total{RATE}))", "jobs rescued"),
        (f"sum by (part) (rate(trueup_database_lost_total{RATE}))", "database lost: {{part}}"),
        (f"sum by (service) (rate(trueup_service_failures_total{RATE}))", "service failed: {{service}}"),
    )
    return [*shown, trouble]


def _panel(title: str, unit: str, *queries: tuple[str, str]) -> Panel:
    return Panel(title, unit, queries)


def _panels_of_jobs(kinds: str) -> list[Panel]:
    due = f"max by (kind, queue) (trueup_jobs_due{{{kinds}}})"
    age = f"max by (kind, queue) (trueup_jobs_oldest_due_age_seconds{{{kinds}}})"
    done, retried, dead = (
        f"sum by (kind) (rate(trueup_jobs_{ending}_total{{{kinds}}}{RATE}))"
        for ending in ("completed", "retried", "buried")
    )
    return [
        _panel("Due jobs", "none", (due, "{{kind}} ({{queue}})")),
        _panel("Age of the oldest due job", "s", (age, "{{kind}} ({{queue}})")),
        _panel("Jobs done", "ops", (done, "{{kind}}")),
        _panel("Jobs that failed", "ops", (retried, "{{kind}} retried"), (dead, "{{kind}} dead")),
        _panel("Lateness of jobs, 99th percentile", "s", _percentile("trueup_job_lateness_seconds", "kind", kinds)),
        _panel("Duration of jobs, 99th percentile", "s", _percentile("trueup_job_duration_seconds", "kind", kinds)),
    ]


def _panels_of_reconcilers(names: str) -> list[Panel]:
    outcomes = f"sum by (reconciler, outcome) (rate(trueup_rows_total{{{names}}}{RATE}))"
    lateness = _percentile("trueup_row_lateness_seconds", "reconciler", names)
    failed = f"sum by (reconciler) (rate(trueup_sweeps_failed_total{{{names}}}{RATE}))"
    return [
        _panel("Rows by outcome", "ops", (outcomes, "{{reconciler}} {{outcome}}")),
        _panel("Lateness of rows, 99th percentile", "s", lateness),
        _panel("Sweeps that failed", "ops", (failed, "{{reconciler}}")),
    ]


def _percentile(metric: str, label: str, matcher: str) -> tuple[str, str]:
    rates = f"sum by (le, {label}) (rate({metric}_bucket{{{matcher}}}{RATE}))"
    return f"histogram_quantile(0.99, {rates})", f"{{{{{label}}}}}"


def grafana(registered: Registered, title: str = "trueup") -> dict[str, Any]:
    """A dashboard for Grafana's import: two charts in a row, the data source chosen at the top."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    charts = []
    for number, panel in enumerate(panels(registered)):
        targets = [
            {"refId": chr(ord("A") + n), "datasource": source, "expr": expr, "legendFormat": legend}
            for n, (expr, legend) in enumerate(panel.queries)
        ]
        charts.append(
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {"x": number % 2 * 12, "y": number // 2 * 8, "w": 12, "h": 8},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": targets,
            }
        )
    return {
        "title": title,
        "tags": ["trueup"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": charts,
    }
