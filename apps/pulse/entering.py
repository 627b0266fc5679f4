"""What people enter: users, projects with their members, tasks and checkpoints, and which reports are wanted."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path
from psycopg import sql
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from trueup import App, ConfigError
from trueup.schedules.zones import zone

from . import database
from .constants import DEFAULT_BRIEFING_HOUR
from .database import Tx

LARGEST = 2**63 - 1
FIRST, LAST = date(2000, 1, 1), date(8999, 12, 31)  # what the tables take


def _storable(text: str) -> str:
    if not text.strip() or any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in text):
        raise ValueError("text is needed, without control characters")
    return text


def _real_zone(name: str) -> str:
    try:
        zone(name)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return name


def _storable_moment(moment: datetime) -> datetime:
    if not FIRST < moment.date() < LAST:
        raise ValueError(f"a moment from {FIRST} to {LAST} is needed")
    return moment


Id = Annotated[int, Path(ge=1, le=LARGEST)]
Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
Zone = Annotated[str, Field(max_length=100, examples=["Europe/Berlin"]), AfterValidator(_real_zone)]
Hour = Annotated[int, Field(ge=0, le=23)]
Day = Annotated[date, Field(ge=FIRST, le=LAST)]
Moment = Annotated[AwareDatetime, AfterValidator(_storable_moment)]
ProjectStatus = Literal["ACTIVE", "PAUSED", "DONE"]


class Entered(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewUser(Entered):
    name: Text
    timezone: Zone = "UTC"
    briefing_hour: Hour = DEFAULT_BRIEFING_HOUR


class NewProject(Entered):
    name: Text
    status: ProjectStatus = "ACTIVE"


class ChangedProject(Entered):
    """What is left out stays as it is."""

    name: Text | None = None
    status: ProjectStatus | None = None


class NewMember(Entered):
    user_id: Annotated[int, Field(ge=1, le=LARGEST)]
    weekly_hours: Annotated[float, Field(ge=0, le=168, allow_inf_nan=False)] = 0


class NewTask(Entered):
    title: Text
    status: Literal["OPEN", "BLOCKED", "DONE"] = "OPEN"
    due_at: Moment | None = None
    done_at: Moment | None = None


class NewCheckpoint(Entered):
    title: Text
    due_on: Day


class NewReportSchedule(Entered):
    """`next_run` is when the first one is due; its day of the month is kept in months that have it."""

    frequency: Literal["DAILY", "WEEKLY", "BIWEEKLY", "MONTHLY"]
    next_run: Moment


def entering(app: App) -> APIRouter:
    api = APIRouter()

    @api.post("/users", status_code=201)
    async def create_user(user: NewUser) -> dict[str, Any]:
        async with app.transaction() as tx:
            return await _insert(tx, "users", user.model_dump())

    @api.get("/users")
    async def list_users(after: int = 0, most: int = 100) -> list[dict[str, Any]]:
        statement = "select * from users where id > %(after)s order by id limit %(most)s"
        async with app.transaction() as tx:
            found = {"after": max(0, min(after, LARGEST)), "most": max(1, min(most, 1000))}
            return await database.rows(tx, statement, found)

    @api.post("/projects", status_code=201)
    async def create_project(project: NewProject) -> dict[str, Any]:
        async with app.transaction() as tx:
            return await _insert(tx, "projects", project.model_dump())

    @api.patch("/projects/{project_id}")
    async def change_project(project_id: Id, changed: ChangedProject) -> dict[str, Any]:
        statement = (
            "update projects set name = coalesce(%(name)s, name), status = coalesce(%(status)s, status)"
            " where id = %(id)s returning *"
        )
        async with app.transaction() as tx:
            found = await database.one(tx, statement, {**changed.model_dump(), "id": project_id})
        return _found(found, "project", project_id)

    @api.put("/projects/{project_id}/members")
    async def put_member(project_id: Id, member: NewMember) -> dict[str, Any]:
        """Who is a member already has other hours afterwards."""
        async with app.transaction() as tx:
            await _must_exist(tx, "projects", "project", project_id)
            await _must_exist(tx, "users", "user", member.user_id)
            statement = (
                "insert into members (project_id, user_id, weekly_hours) values (%(id)s, %(user_id)s, %(weekly_hours)s)"
                " on conflict (project_id, user_id) do update set weekly_hours = excluded.weekly_hours returning *"
            )
            found = await database.one(tx, statement, {**member.model_dump(), "id": project_id})
        return _found(found, "member", member.user_id)

    @api.post("/projects/{project_id}/tasks", status_code=201)
    async def create_task(project_id: Id, task: NewTask) -> dict[str, Any]:
        if (task.status == "DONE") != (task.done_at is not None):
            raise HTTPException(422, "done_at belongs to a task that is DONE, and to no other")
        async with app.transaction() as tx:
            await _must_exist(tx, "projects", "project", project_id)
            return await _insert(tx, "tasks", {**task.model_dump(), "project_id": project_id})

    @api.post("/projects/{project_id}/checkpoints", status_code=201)
    async def create_checkpoint(project_id: Id, checkpoint: NewCheckpoint) -> dict[str, Any]:
        async with app.transaction() as tx:
            await _must_exist(tx, "projects", "project", project_id)
            return await _insert(tx, "checkpoints", {**checkpoint.model_dump(), "project_id": project_id})

    @api.post("/checkpoints/{checkpoint_id}/done")
    async def checkpoint_is_done(checkpoint_id: Id) -> dict[str, Any]:
        statement = "update checkpoints set done = true where id = %(id)s returning *"
        async with app.transaction() as tx:
            return _found(await database.one(tx, statement, {"id": checkpoint_id}), "checkpoint", checkpoint_id)

    @api.post("/projects/{project_id}/report-schedules", status_code=201)
    async def create_report_schedule(project_id: Id, wanted: NewReportSchedule) -> dict[str, Any]:
        values = {**wanted.model_dump(), "anchor_day": wanted.next_run.astimezone(UTC).day, "project_id": project_id}
        async with app.transaction() as tx:
            await _must_exist(tx, "projects", "project", project_id)
            return await _insert(tx, "report_schedules", values)

    @api.delete("/report-schedules/{schedule_id}")
    async def end_report_schedule(schedule_id: Id) -> dict[str, Any]:
        """No further report is made; those that were are kept."""
        statement = "update report_schedules set active = false, version = version + 1 where id = %(id)s returning *"
        async with app.transaction() as tx:
            return _found(await database.one(tx, statement, {"id": schedule_id}), "report schedule", schedule_id)

    return api


async def _insert(tx: Tx, table: str, values: Mapping[str, Any]) -> dict[str, Any]:
    statement = sql.SQL("insert into {} ({}) values ({}) returning *").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(map(sql.Placeholder, values)),
    )
    (made,) = await database.rows(tx, statement, values)
    return made


async def _must_exist(tx: Tx, table: str, what: str, key: int) -> None:
    statement = sql.SQL("select id from {} where id = %(id)s for key share").format(sql.Identifier(table))
    _found(await database.one(tx, statement, {"id": key}), what, key)


def _found(thing: dict[str, Any] | None, what: str, key: object) -> dict[str, Any]:
    if thing is None:
        raise HTTPException(404, f"there is no {what} {key}")
    return thing
