"""The job that makes reports: all that are due, three at a time. A report and the time of the next one are one commit."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trueup import App, Context, Failed, Lease, Stay, Tick

from . import reports, runs
from .config import Config
from .constants import CHECK_TIMEOUT, REPORT_GENERATION_BATCH_SIZE, REPORT_GENERATION_CONCURRENCY
from .dates import Frequency, next_run, since
from .plan import SCHEDULED_REPORT
from .reports import ReportSchedule
from .retrying import retrying, told

log = logging.getLogger("pulse")

RECONCILER = "make-report"


@dataclass(frozen=True)
class Made:
    began_at: datetime
    next_run: datetime
    content: dict[str, Any]


def declare(app: App, config: Config) -> None:
    table = app.table("report_schedules", key="id", version="version", where="active")

    @table.reconcile(
        due_at="next_run",
        name=RECONCILER,
        every=None,  # only within a run, so under its lock
        batch=REPORT_GENERATION_BATCH_SIZE,
        concurrency=REPORT_GENERATION_CONCURRENCY,
        lease_for=runs.row_lease(config),
        timeout=CHECK_TIMEOUT,
        revisit="1m",  # one that failed is still due: at the next run, and not over and over in this one
        exhausted=given_up,
    )
    async def make_report(schedule: ReportSchedule, *, ctx: Context) -> Stay | None:
        run = runs.current.get()
        context = f"Report {schedule.id} of project {schedule.project_id}"
        try:
            made = await retrying(context, lambda: make(app, schedule))
        except Exception as error:
            facts = {"report_schedule_id": schedule.id, "project_id": schedule.project_id, "error": told(error)}
            log.error("Report failed", extra={**run.facts, **facts})
            run.failed_keys.add(schedule.id)
            return Stay(last_error=told(error), failures=schedule.failures + 1)
        async with ctx.transaction(Stay(next_run=made.next_run, last_error=None, failures=0)) as tx:
            await reports.record(tx, schedule, made.content, run, made.began_at)
        run.succeeded += 1
        return None

    @runs.cron(app, config, SCHEDULED_REPORT)
    async def scheduled_report(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, SCHEDULED_REPORT, tick, lease, ctx, "reports") as run:

            async def left() -> int:
                async with app.transaction() as tx:
                    due = await reports.waiting(tx, await app.now(tx))
                return due - run.failed  # those are still due, but have had their turn

            found = await left()
            log.info("Found %d reports due", found, extra={**run.facts, "reports": found})
            await run.sweep(RECONCILER, left)


async def make(app: App, schedule: ReportSchedule) -> Made:
    frequency = Frequency(schedule.frequency)
    async with app.transaction() as tx:
        now = await app.now(tx)
        following, missed = next_run(frequency, schedule.next_run, schedule.anchor_day, now)
        content = await reports.content(tx, schedule, since(frequency, schedule.next_run), missed)
    return Made(now, following, content)


def given_up(schedule: ReportSchedule | None, failed: Failed) -> Stay:
    return Stay(last_error=failed.message, failures=(schedule.failures if schedule else 0) + 1)
