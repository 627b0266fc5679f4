"""The HTTP API: what people enter (`entering.py`), how projects are, what was made for people, what has run, and a run by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Path, Query

from apps.plain_api import plain_api
from trueup import ConfigError, NotFound

from . import briefings, projects, reminders, reports, runs
from .entering import entering
from .health import Level
from .plan import JOBS
from .service import Service

T = TypeVar("T")

LARGEST = 2**63 - 1
Most = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=0, le=LARGEST)]
Id = Annotated[int, Path(ge=1, le=LARGEST)]
Name = Annotated[str, Path(max_length=100)]


def make_api(service: Service, *, embedded_worker: bool = False) -> FastAPI:
    """With `embedded_worker` this process runs the jobs, too."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await service.prepare()
        try:
            if embedded_worker:
                async with service.app.worker():
                    yield
            else:
                yield
        finally:
            await service.close()

    api = plain_api("Pulse", lifespan)
    app = service.app
    api.include_router(entering(app))

    @api.get("/projects")
    async def list_projects(level: Level | None = None, after: After = 0, most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await projects.every(tx, level=level, after=after, most=most)

    @api.get("/projects/{project_id}")
    async def read_project(project_id: Id) -> dict[str, Any]:
        async with app.transaction() as tx:
            return _found(await projects.get(tx, project_id), "project", project_id)

    @api.get("/projects/{project_id}/checks")
    async def checks_of_project(project_id: Id, most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            _found(await projects.get(tx, project_id), "project", project_id)
            return await projects.checks(tx, project_id, most)

    @api.get("/projects/{project_id}/reports")
    async def reports_of_project(project_id: Id, most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            _found(await projects.get(tx, project_id), "project", project_id)
            return await reports.latest(tx, project_id=project_id, most=most)

    @api.get("/alerts")
    async def list_alerts(most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await projects.latest_alerts(tx, most)

    @api.get("/reports")
    async def list_reports(most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await reports.latest(tx, project_id=None, most=most)

    @api.get("/reminders")
    async def list_reminders(most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await reminders.latest(tx, most)

    @api.get("/users/{user_id}/briefings")
    async def briefings_of_user(user_id: Id, most: Most = 100) -> list[dict[str, Any]]:
        async with app.transaction() as tx:
            return await briefings.of_user(tx, user_id, most)

    @api.get("/jobs")
    async def list_jobs() -> list[dict[str, Any]]:
        """Each with its lock, its schedule and, once a worker has started, when it is due next."""
        stored = {each["name"]: each for each in await app.schedules.list()}
        return [
            {
                "name": job.name,
                "schedule": service.config.schedules[job.name],
                "lock_key": job.lock_key,
                "state": stored.get(job.name, {}).get("state", "not started"),
                "next_due_at": stored.get(job.name, {}).get("next_due_at"),
            }
            for job in JOBS
        ]

    @api.get("/jobs/{name}/runs")
    async def runs_of_job(name: Name, most: Most = 20) -> dict[str, Any]:
        """Its latest ticks, fired or skipped and why, and its latest runs; one without an end is under way or was cut off."""
        _known(name)
        try:
            ticks = (await app.schedules.show(name, ticks=most))["ticks"]
        except NotFound:
            ticks = []
        async with app.transaction() as tx:
            return {"ticks": ticks, "runs": await runs.latest(tx, name, most)}

    @api.post("/jobs/{name}/run", status_code=202)
    async def run_now(name: Name) -> dict[str, int]:
        """Once, now. While it runs already it does not run twice: that tick is then recorded as skipped."""
        _known(name)
        try:
            return {"job_id": await app.schedules.trigger(name)}
        except NotFound:
            raise HTTPException(409, f"no worker has started yet, so {name} is not scheduled") from None
        except ConfigError as error:  # it is due at this very moment
            raise HTTPException(409, str(error)) from None

    return api


def _known(name: str) -> None:
    names = [job.name for job in JOBS]
    if name not in names:
        raise HTTPException(404, f"there is no job {name}; there are {', '.join(names)}")


def _found(thing: T | None, what: str, key: object) -> T:
    if thing is None:
        raise HTTPException(404, f"there is no {what} {key}")
    return thing
