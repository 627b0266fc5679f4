"""The job that checks projects: those that have not been checked for a while, five at a time, until none is left."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from trueup import App, Context, Failed, Lease, Stay, Tick

from . import projects, runs
from .config import Config
from .constants import (
    CHECK_TIMEOUT,
    HEALTH_CHECK_BATCH_SIZE,
    HEALTH_CHECK_CONCURRENCY,
    HEALTH_CHECK_STALE_MINUTES,
)
from .health import Health, judge
from .plan import HEALTH_CHECK
from .projects import Project
from .retrying import retrying, told
from .sending import Sender

log = logging.getLogger("pulse")

RECONCILER = "check-project"


def declare(app: App, config: Config, sender: Sender) -> None:
    table = app.table("projects", key="id", state="status", changed_at="last_health_check")

    @table.reconcile(
        "ACTIVE",
        stale_for=timedelta(minutes=HEALTH_CHECK_STALE_MINUTES),
        name=RECONCILER,
        every=None,  # only within a run, so under its lock
        batch=HEALTH_CHECK_BATCH_SIZE,
        concurrency=HEALTH_CHECK_CONCURRENCY,
        lease_for=runs.row_lease(config),
        timeout=CHECK_TIMEOUT,
        exhausted=given_up,
    )
    async def check_project(project: Project, *, ctx: Context) -> Stay | None:
        run = runs.current.get()
        try:
            began_at, health = await retrying(f"Health check of project {project.id}", lambda: look(app, project))
        except Exception as error:
            log.error("Health check failed", extra={**run.facts, "project_id": project.id, "error": told(error)})
            run.failed_keys.add(project.id)
            return Stay(health_error=told(error), health_failures=project.health_failures + 1)
        checked = Stay(
            health_score=health.score,
            health_level=health.level,
            health_trend=health.trend,
            health_error=None,
            health_failures=0,
        )
        async with ctx.transaction(checked) as tx:
            await projects.record(tx, project, health, run, began_at, sender)
        run.succeeded += 1
        return None

    @runs.cron(app, config, HEALTH_CHECK)
    async def health_check(tick: Tick, lease: Lease, ctx: Context) -> None:
        async with runs.recorded(app, config, HEALTH_CHECK, tick, lease, ctx, "health checks") as run:

            async def left() -> int:
                async with app.transaction() as tx:
                    return await projects.waiting(tx, await app.now(tx), HEALTH_CHECK_STALE_MINUTES)

            found = await left()
            facts = {**run.facts, "projects": found}
            log.info("Found %d active projects needing health checks", found, extra=facts)
            await run.sweep(RECONCILER, left)


async def look(app: App, project: Project) -> tuple[datetime, Health]:
    """How the project is doing, and when that was."""
    async with app.transaction() as tx:
        now = await app.now(tx)
        return now, judge(await projects.facts(tx, project.id, now), now, project.health_score)


def given_up(project: Project | None, failed: Failed) -> Stay:
    """A check that took its process with it, over and over: it goes to the end of the queue like any that failed."""
    return Stay(health_error=failed.message, health_failures=(project.health_failures if project else 0) + 1)
