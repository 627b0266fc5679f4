"""Projects and their health in the database. Everything here runs in a transaction of the caller's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from . import database
from .database import Tx
from .health import Facts, Health, Level, alerts
from .runs import Run
from .sending import Sender

# Of the last four weeks: what was due then, or done then. A member's hours are those of all projects that are active.
FACTS = """
select count(*) filter (where due_at between lately and at)::int as due,
       count(*) filter (where due_at between lately and at and done_at <= due_at)::int as on_time,
       count(*) filter (where status <> 'DONE')::int as open,
       count(*) filter (where status = 'BLOCKED')::int as blocked,
       count(*) filter (where done_at between at - interval '7 days' and at)::int as done_7_days,
       count(*) filter (where done_at between lately and at)::int as done_28_days,
       min(due_at) filter (where status <> 'DONE') as next_due_at,
       array(select sum(m.weekly_hours)::float8
               from members as m join projects as p on p.id = m.project_id and p.status = 'ACTIVE'
              where m.user_id in (select user_id from members where project_id = %(id)s)
              group by m.user_id order by m.user_id) as hours
  from (select %(now)s::timestamptz as at, %(now)s::timestamptz - interval '28 days' as lately) as clock
  left join tasks on project_id = %(id)s
"""
RECORD = """
insert into health_checks (project_id, tick, term, score, level, trend, risks, parts, began_at)
values (%(id)s, %(tick)s, %(term)s, %(score)s, %(level)s, %(trend)s, %(risks)s, %(parts)s, %(began_at)s) returning id
"""
ALERT = """
insert into alerts (health_check_id, project_id, level_before, level_after)
values (%(check)s, %(id)s, %(before)s, %(after)s)
"""
WAITING = """
select count(*)::int as waiting from projects
 where status = 'ACTIVE' and (last_health_check is null or last_health_check < %(now)s - make_interval(mins => %(minutes)s))
"""


@dataclass(frozen=True)
class Project:
    """What a check needs of the row."""

    id: int
    name: str
    health_score: float | None
    health_level: str | None
    health_failures: int


async def facts(tx: Tx, project_id: int, now: datetime) -> Facts:
    """Raises UnusableFacts when the numbers cannot be."""
    found = await database.one(tx, FACTS, {"id": project_id, "now": now})
    assert found is not None
    return Facts(**{**found, "hours": tuple(found["hours"])})


async def record(tx: Tx, project: Project, health: Health, run: Run, began_at: datetime, sender: Sender) -> None:
    """The check, and an alert when it got worse, with its way to the webhook."""
    params = {
        "id": project.id,
        "tick": run.tick.due_at,
        "term": run.lease.term,
        "score": health.score,
        "level": health.level,
        "trend": health.trend,
        "risks": list(health.risks),
        "parts": Jsonb(asdict(health.parts)),
        "began_at": began_at,
    }
    check = await database.one(tx, RECORD, params)
    assert check is not None
    before = None if project.health_level is None else Level(project.health_level)
    if alerts(before, health.level):
        told = {"check": check["id"], "id": project.id, "before": before, "after": health.level}
        await tx.execute(ALERT, told)
        alert = {"project_id": project.id, "name": project.name, "level_before": before, "level_after": health.level}
        await sender.alert(tx, check["id"], {**alert, "score": health.score, "risks": list(health.risks)})


async def waiting(tx: Tx, now: datetime, stale_minutes: int) -> int:
    """How many are to be checked."""
    found = await database.one(tx, WAITING, {"now": now, "minutes": stale_minutes})
    assert found is not None
    return int(found["waiting"])


# -- for people -------------------------------------------------------------------------------------------------------

SHOWN = """
select id, name, status, last_health_check, health_score, health_level, health_trend, health_error, health_failures
  from projects
 where (%(id)s::bigint is null or id = %(id)s) and id > %(after)s and (%(level)s::text is null or health_level = %(level)s)
 order by id limit %(most)s
"""
CHECKS = """
select id, tick, score, level, trend, risks, parts, ended_at as checked_at
  from health_checks where project_id = %(id)s order by id desc limit %(most)s
"""
ALERTS = """
select a.project_id, p.name, a.level_before, a.level_after, a.created_at
  from alerts as a join projects as p on p.id = a.project_id order by a.health_check_id desc limit %(most)s
"""


async def every(tx: Tx, *, level: str | None, after: int, most: int) -> list[dict[str, Any]]:
    return await database.rows(tx, SHOWN, {"id": None, "level": level, "after": after, "most": most})


async def get(tx: Tx, project_id: int) -> dict[str, Any] | None:
    return await database.one(tx, SHOWN, {"id": project_id, "level": None, "after": 0, "most": 1})


async def checks(tx: Tx, project_id: int, most: int) -> list[dict[str, Any]]:
    return await database.rows(tx, CHECKS, {"id": project_id, "most": most})


async def latest_alerts(tx: Tx, most: int) -> list[dict[str, Any]]:
    return await database.rows(tx, ALERTS, {"most": most})
