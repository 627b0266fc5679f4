"""Reads what is needed to check that the ledger has every expected tick, and that every run has its tick; `schedules.audit`
judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, islice

from trueup.errors import ConfigError
from trueup.schedules import spec as specs
from trueup.schedules.audit import Astray, Findings, LedgerRow, expected, reigns
from trueup.store.db.message import Fetched
from trueup.store.schedules import Schedules

PAGE = 10_000  # ticks judged at a time


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings of each schedule that existed at any time in the period."""

    since: datetime
    until: datetime
    schedules: tuple[Findings, ...]

    @property
    def clean(self) -> bool:
        return all(findings.clean for findings in self.schedules)

    def with_missing(self, missing: Mapping[str, str]) -> Audit:
        """The same audit with the schedules added that code declares and that do not fire, each with the reason."""
        found = {findings.name: findings for findings in self.schedules}
        for name, why in missing.items():
            found.setdefault(name, Findings(name)).missing = why
        return replace(self, schedules=tuple(found[name] for name in sorted(found)))


async def audit(schedules: Schedules, within: timedelta, kept: timedelta) -> Audit:
    """Judge the last `within`, as far back as the ledger is `kept`."""
    # Read in this order, so that ticks decided in between do no harm: the time, versions and watermarks, the ledger.
    now = await schedules.now()
    start = now - min(within, kept)
    found: dict[str, Findings] = {}
    for name, versions in groupby(await schedules.versions(start), key=lambda row: row[0]):
        found[name] = await _one(schedules, name, list(versions), start, now)
    for name, due_at, job_id, recorded in await schedules.runs_astray(start):
        found.setdefault(name, Findings(name)).astray.append(Astray(due_at, job_id, recorded))
    return Audit(start, now, tuple(found[name] for name in sorted(found)))


async def _one(schedules: Schedules, name: str, versions: Fetched, start: datetime, now: datetime) -> Findings:
    findings = Findings(name)
    try:
        held = reigns(
            [(since, specs.from_json(spec) if state == "active" else None) for _, since, state, spec, _ in versions],
            now,
        )
    except ConfigError as error:
        findings.unreadable = str(error)
        return findings
    watermark = versions[-1][4] or now  # a deleted schedule has none: all of its ticks have their verdict
    # A tick of an earlier version was settled when it ended, whatever the watermark says.
    watermark = max(watermark, min(versions[-1][1], now))
    ticks, after = expected(held, start, now), start
    while True:
        page = list(islice(ticks, PAGE))
        until = page[-1] if len(page) == PAGE else now
        rows = [LedgerRow(*row) for row in await schedules.ledger(name, after, until)]
        findings.compare(page, rows, after, watermark, now)
        if len(page) < PAGE:
            return findings
        after = until
